"""Start the service: `python -m service`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
from contextlib import suppress

USAGE = """usage: python -m service

Settings are environment variables, such as CAPSNET_PORT=8000: see docs/reference/settings.md."""


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless something failed."""
    if sys.argv[1:]:
        print(f"{_variable(sys.argv[1])}{USAGE}", file=sys.stderr)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the supervisor has its own handlers
        signal.signal(sig, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing is loaded yet
    allow_many_connections()
    supervise()


def _variable(option: str) -> str:
    """Name the variable of an option that somebody tried, in a line; empty if none has it."""
    from service.settings import Settings  # noqa: PLC0415  not in the supervisor

    name = option.lstrip("-").partition("=")[0].replace("-", "_")
    known = option.startswith("--") and name in Settings.model_fields
    return f"{option} is no option: set CAPSNET_{name.upper()}\n" if known else ""


def supervise() -> None:
    """Read the settings, and run the supervisor."""
    from service.processes.folder import own_folder  # noqa: PLC0415  signals are handled before
    from service.processes.options import Options  # noqa: PLC0415
    from service.processes.supervisor import Supervisor  # noqa: PLC0415
    from service.telemetry import FOLDER, logs  # noqa: PLC0415

    options = Options.read()
    logs.configure(options.log_format)
    with own_folder() as folder:
        os.environ[FOLDER] = str(folder)
        try:
            failure = Supervisor(options, folder).serve()
        except OSError as error:
            failure = str(error)
    if failure:
        logging.shutdown()  # what was logged is written before the reason
        sys.exit(f"capsnet-service: {failure}")


def allow_many_connections() -> None:
    """Raise the limit of open file descriptors to the most that this process may set.

    Where they run out no connection is accepted, and supervisors kill what answers no probe.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
