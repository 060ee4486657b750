"""Start the service: `python -m service`."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from service.lifecycle import end
from service.settings import Settings, SettingsError
from service.telemetry import logs

USAGE = """usage: python -m service

Settings are environment variables, such as CAPSNET_PORT=8000: see docs/reference/settings.md."""


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless something failed."""
    if sys.argv[1:]:
        print(USAGE, file=sys.stderr)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    allow_many_connections()
    try:
        settings = Settings.from_environment()
        logs.configure(settings.log_format)
        if settings.of_worker().workers == 1 and settings.engine != "shared":
            serve(settings)
        else:
            end(supervise(settings))
    except SettingsError as error:
        sys.exit(f"capsnet-service: {error}")


def serve(settings: Settings) -> None:
    """Serve from this process alone."""
    from service.app import create_app  # noqa: PLC0415  a supervisor needs none of it
    from service.server import Server  # noqa: PLC0415

    Server(create_app(settings), settings).run()


def supervise(settings: Settings) -> str | None:
    """Serve from other processes; the failure, if it ends with one."""
    from service.http.keys import Access  # noqa: PLC0415  as above
    from service.supervisor import Supervisor  # noqa: PLC0415
    from service.telemetry.tracing import telemetry  # noqa: PLC0415

    Access(settings), telemetry(settings)  # what is wrong with them is said once

    with tempfile.TemporaryDirectory(prefix="capsnet-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        return asyncio.run(Supervisor(settings, Path(folder)).run())


def allow_many_connections() -> None:
    """Have as many file descriptors as the system lets this process have without asking.

    Where they run out no connection is accepted, and supervisors kill what answers no probe.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
