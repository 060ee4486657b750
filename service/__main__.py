"""Start the service: `python -m service`."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from model.runtime import DeviceError
from service import logs
from service.app import attach, create_app
from service.bundles import NothingToServe, load_runtimes
from service.engine import Engine
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.server import Server
from service.settings import Settings, SettingsError

log = logging.getLogger("service")


def main() -> NoReturn:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless something failed."""
    lifecycle, metrics = Lifecycle(), Metrics()
    try:
        settings = Settings.from_environment()
        logs.configure(settings.log_format)
        app = create_app(settings, lifecycle=lifecycle, metrics=metrics)
    except SettingsError as error:
        sys.exit(f"capsnet-service: {error}")
    server = Server(
        uvicorn.Config(
            app,
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
        load=partial(load, app, settings, lifecycle=lifecycle, metrics=metrics),
    )
    server.run()
    end(lifecycle.failure)


def load(app: FastAPI, settings: Settings, *, lifecycle: Lifecycle, metrics: Metrics) -> None:
    """Load the bundles and put them behind the app; what goes wrong ends the process."""
    try:
        engine = Engine(
            load_runtimes(settings),
            max_encode_rows=settings.max_batch_rows,
            max_delay_s=settings.max_delay_ms / 1000,
            max_waiting_rows=settings.max_waiting_rows,
            on_batch=metrics.note_batch,
            on_lost=lifecycle.lose,
        )
    except (NothingToServe, DeviceError) as error:
        lifecycle.fail(str(error))
    except Exception as error:
        log.exception("the bundles cannot be loaded")
        lifecycle.fail(f"the bundles cannot be loaded: {error}")
    else:
        attach(app, engine)
        log.info("ready: %s with %s", ", ".join(engine.manifests), engine.provider)


def end(failure: str | None) -> NoReturn:
    """End the process, whatever its threads are doing: one that is stuck cannot hold it up."""
    if failure:
        print(f"capsnet-service: {failure}", file=sys.stderr)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failure else 0)


if __name__ == "__main__":
    main()
