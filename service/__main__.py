"""Start the service: `python -m service`."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

USAGE = """usage: python -m service

Settings are environment variables, such as CAPSNET_PORT=8000: see docs/reference/settings.md."""
_LONGEST = (
    80  # bytes of TMPDIR: the path of a socket, which is in a folder of it, has 107 (macOS: 103)
)


def main() -> None:
    """Serve until SIGTERM or SIGINT; the exit code is 0 unless something failed."""
    if sys.argv[1:]:
        print(USAGE, file=sys.stderr)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the supervisor has its own handlers
        signal.signal(sig, lambda *_: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nothing is loaded yet
    allow_many_connections()
    supervise()


def supervise() -> None:
    """Read the settings, and run the supervisor."""
    import asyncio  # noqa: PLC0415

    from service.processes.board import FOLDER  # noqa: PLC0415  signals are handled before
    from service.processes.plan import Plan  # noqa: PLC0415
    from service.processes.supervisor import Supervisor  # noqa: PLC0415
    from service.telemetry import logs  # noqa: PLC0415

    plan = Plan.read()
    logs.configure(plan.log_format)
    temporary = tempfile.gettempdir()
    if len(os.fsencode(temporary)) > _LONGEST:
        temporary = "/tmp"  # noqa: S108  the folder made in it is this user's alone
    with tempfile.TemporaryDirectory(
        prefix="capsnet-", dir=temporary, ignore_cleanup_errors=True
    ) as folder:
        os.environ[FOLDER] = folder
        failure = asyncio.run(Supervisor(plan, Path(folder)).run())
    if failure:
        sys.exit(f"capsnet-service: {failure}")


def allow_many_connections() -> None:
    """Have as many file descriptors as the system lets this process have without asking.

    Where they run out no connection is accepted, and supervisors kill what answers no probe.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
