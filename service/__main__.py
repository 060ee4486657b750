"""Start the service: `python -m service`."""

from __future__ import annotations

import logging
import sys

import uvicorn

from model.runtime import DeviceError
from service.app import create_app
from service.bundles import NothingToServe, load_runtimes
from service.engine import Engine
from service.settings import Settings, SettingsError


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings.from_environment()
        engine = Engine(load_runtimes(settings))
    except (SettingsError, NothingToServe, DeviceError) as error:
        sys.exit(f"capsnet-service: {error}")
    logging.getLogger("service").info(
        "%s with %s on http://%s:%s",
        ", ".join(engine.manifests),
        engine.provider,
        settings.host,
        settings.port,
    )
    uvicorn.run(
        create_app(settings, engine),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=30,
    )


if __name__ == "__main__":
    main()
