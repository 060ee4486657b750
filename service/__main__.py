"""Start the service: `python -m service`."""

from __future__ import annotations

import logging
import sys

import uvicorn

from model.runtime import DeviceError
from service import logs
from service.app import create_app
from service.bundles import NothingToServe, load_runtimes
from service.engine import Engine
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.server import Server
from service.settings import Settings, SettingsError

log = logging.getLogger("service")


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless the device was lost."""
    lifecycle, metrics = Lifecycle(), Metrics()
    try:
        settings = Settings.from_environment()
        logs.configure(settings.log_format)
        engine = Engine(
            load_runtimes(settings),
            max_encode_rows=settings.max_batch_rows,
            max_delay_s=settings.max_delay_ms / 1000,
            max_waiting_rows=settings.max_waiting_rows,
            on_batch=metrics.note_batch,
            on_lost=lifecycle.lose,
        )
    except (SettingsError, NothingToServe, DeviceError) as error:
        sys.exit(f"capsnet-service: {error}")
    server = Server(
        uvicorn.Config(
            create_app(settings, engine, lifecycle=lifecycle, metrics=metrics),
            host=settings.host,
            port=settings.port,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout_s,
        ),
        lifecycle=lifecycle,
        grace_s=settings.drain_grace_s,
    )
    models, where = ", ".join(engine.manifests), f"http://{settings.host}:{settings.port}"
    log.info("%s with %s on %s", models, engine.provider, where)
    server.run()
    sys.exit(lifecycle.lost)


if __name__ == "__main__":
    main()
