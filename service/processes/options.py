"""The settings that the supervisor needs, read by a short-lived process.

Settings need pydantic and onnxruntime: 45 MB that the supervisor does without.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from service.settings import Settings


class Options(NamedTuple):
    """The supervisor's part of `service.settings.Settings`."""

    host: str
    port: int
    grpc_port: int
    workers: int
    log_format: Literal["text", "json"]
    heartbeat_timeout_s: float
    drain_grace_s: float
    drain_timeout_s: float

    @classmethod
    def read(cls) -> Self:
        """Read the environment. An invalid setting ends the process with a message."""
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            _write(writing)
        os.close(writing)
        with open(reading) as pipe:  # noqa: PTH123  a descriptor
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        if code := os.waitstatus_to_exitcode(status):
            sys.exit(code)
        return cls(**json.loads(text))


def _write(writing: int) -> None:
    """Read the settings, report what is wrong with them, and end this process."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)
    from service.settings import Settings, SettingsError  # noqa: PLC0415  not in the supervisor

    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        print(f"capsnet-service: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    options = {name: getattr(settings, name) for name in Options._fields}
    options["workers"] = settings.workers or _default_workers(settings)
    with suppress(BrokenPipeError):  # the supervisor is ending
        os.write(writing, json.dumps(options).encode())
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
