"""Start the service: `python -m service`.

A short-lived process reads the settings, because they need pydantic, and where a GPU is looked for
onnxruntime: 45 MB that the supervisor does without.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.settings import Settings

USAGE = """usage: python -m service

There are no options. Settings are environment variables, such as CAPSNET_PORT=8000: see
docs/reference/settings.md."""


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
    from service.processes.folder import own_folder  # noqa: PLC0415  signals are handled before
    from service.processes.supervisor import Options, Supervisor  # noqa: PLC0415
    from service.telemetry import FOLDER_VARIABLE, logs  # noqa: PLC0415

    options = Options(**_read_settings(Options._fields))
    logs.configure(options.log_format)
    with own_folder() as folder:
        os.environ[FOLDER_VARIABLE] = str(folder)
        try:
            failure = Supervisor(options, folder).serve()
        except OSError as error:
            failure = str(error)
    if failure:
        logging.shutdown()  # what was logged is written before the reason
        sys.exit(f"capsnet-service: {failure}")


def _read_settings(names: tuple[str, ...]) -> dict[str, Any]:
    """Read some settings in another process. An invalid one ends this process with a message."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _send_settings(names, writing)
    os.close(writing)
    with open(reading) as pipe:  # noqa: PTH123  a descriptor
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(code)
    values: dict[str, Any] = json.loads(text)
    return values


def _send_settings(names: tuple[str, ...], writing: int) -> None:
    """Read all settings, send some, report what is wrong with them, and end this process."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)
    from service.settings import Settings, SettingsError  # noqa: PLC0415  not in the supervisor

    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        print(f"capsnet-service: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    values = {name: getattr(settings, name) for name in names}
    values["workers"] = settings.workers or _default_workers(settings)
    with suppress(BrokenPipeError):  # the supervisor is ending
        os.write(writing, json.dumps(values).encode())
    os._exit(0)


def _default_workers(settings: Settings) -> int:
    """Return the default number of workers: one on CUDA, else one for each CPU of the quota."""
    from model.runtime import DeviceError  # noqa: PLC0415  as above
    from model.runtime.cpu import cpu_quota  # noqa: PLC0415
    from model.runtime.cuda import CudaDevice  # noqa: PLC0415

    if settings.device == "cpu":
        return cpu_quota()
    with suppress(DeviceError):
        CudaDevice(settings.cuda)
        return 1
    return cpu_quota()


def allow_many_connections() -> None:
    """Raise the limit of open file descriptors to the most that this process may set.

    Where they run out no connection is accepted, and supervisors kill what answers no probe.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS: fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
