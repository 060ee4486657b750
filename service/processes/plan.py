"""What the supervisor needs of the settings, read by a process that then ends.

Settings need pydantic, and that as much memory as the supervisor itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from service.settings import Settings


@dataclass(frozen=True)
class Plan:
    """How the service is to run; see `service.settings.Settings`."""

    host: str
    port: int
    workers: int
    shared_engine: bool
    """Whether one process computes for all workers."""
    log_format: Literal["text", "json"]
    inference_timeout_s: float
    drain_grace_s: float
    drain_timeout_s: float

    @classmethod
    def read(cls) -> Plan:
        """Read it from the environment; what is wrong there ends the process with a sentence."""
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
    """Read the settings, say what is wrong with them, and end this process."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)
    from service.http.keys import Access  # noqa: PLC0415  the supervisor needs none of this
    from service.settings import Settings, SettingsError  # noqa: PLC0415
    from service.telemetry.tracing import telemetry  # noqa: PLC0415

    try:
        settings = Settings.from_environment()
        Access(settings), telemetry(settings)
    except SettingsError as error:
        print(f"capsnet-service: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    engine = settings.engine
    if engine == "auto":
        may = settings.device != "cpu" and settings.of_worker().workers > 1
        engine = "shared" if may and _has_cuda(settings) else "local"
    plan = Plan(
        host=settings.host,
        port=settings.port,
        workers=settings.of_worker().workers,
        shared_engine=engine == "shared",
        log_format=settings.log_format,
        inference_timeout_s=settings.inference_timeout_s,
        drain_grace_s=settings.drain_grace_s,
        drain_timeout_s=settings.drain_timeout_s,
    )
    with suppress(BrokenPipeError):  # the supervisor was told to end
        os.write(writing, json.dumps(asdict(plan)).encode())
    os._exit(0)


def _has_cuda(settings: Settings) -> bool:
    """Whether CUDA works, as the settings want it used."""
    from model.runtime import DeviceError  # noqa: PLC0415  as above
    from model.runtime.cuda import CudaDevice  # noqa: PLC0415

    with suppress(DeviceError):
        CudaDevice(settings.cuda)
        return True
    return False
