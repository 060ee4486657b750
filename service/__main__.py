"""Start the service: `python -m service`."""

from __future__ import annotations

import logging
import os
import resource
import sys
from contextlib import suppress
from typing import NoReturn

import uvicorn

from service import logs
from service.app import create_app
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.protocol import Http1
from service.server import Server
from service.settings import Settings, SettingsError

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than any `Retry-After`, and than load balancers keep
theirs. Who comes back then does not send a request into a connection that is closing."""


USAGE = """usage: python -m service

Settings are environment variables, such as CAPSNET_PORT=8000: see docs/configuration.md."""


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless something failed."""
    if sys.argv[1:]:
        print(USAGE, file=sys.stderr)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    allow_many_connections()
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
            http=Http1,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout_s,
            timeout_keep_alive=KEEP_ALIVE_S,
        ),
        lifecycle=lifecycle,
        grace_s=settings.drain_grace_s,
        loader=app.state.loader,
        end=lambda: end(lifecycle.failure),
    )
    server.run()


def allow_many_connections() -> None:
    """Have as many file descriptors as the system lets this process have without asking.

    Where they run out no connection is accepted, and supervisors kill what answers no probe.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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
