"""The engine in a process of its own: `python -m service.inference.process`."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path

from model.runtime import DeviceError
from service.control import Control, Message
from service.inference.batcher import Batcher
from service.inference.bundles import (
    NothingToServe,
    ReloadRefused,
    load_runtimes,
    settle_memory,
)
from service.inference.engine import Engine, open_engine
from service.inference.remote import Host
from service.lifecycle import Lifecycle, end, watch
from service.settings import Settings
from service.telemetry import logs
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
NO_CUDA = "CUDA does not work"
"""Why an engine that was started for CUDA alone ends."""
_DRAIN_S = 60.0
"""How long requests that began with this engine may take to end."""


def main() -> None:
    """Compute for all workers until the supervisor says stop."""
    for sig in (signal.SIGTERM, signal.SIGHUP):  # the supervisor says when to end
        signal.signal(sig, signal.SIG_IGN)
    settings = Settings.from_environment()
    logs.configure(settings.log_format)
    _, descriptor, path, strict = sys.argv
    asyncio.run(_serve(settings, int(descriptor), Path(path), strict=bool(strict)))


async def _serve(settings: Settings, descriptor: int, path: Path, *, strict: bool) -> None:
    lifecycle, metrics = Lifecycle(), Metrics()
    over = asyncio.Event()

    def receive(message: Message, _descriptor: int | None) -> None:
        if "stop" in message:
            over.set()

    def lose(error: Exception) -> None:
        lifecycle.lose(error)
        loop.call_soon_threadsafe(over.set)

    loop = asyncio.get_running_loop()
    control = Control(socket.socket(fileno=descriptor), receive, over.set)

    def load() -> Engine:
        runtimes = load_runtimes(settings, strict=strict)
        return open_engine(runtimes, on_batch=metrics.note_batch, on_lost=lose)

    try:
        engine = await asyncio.to_thread(load)
    except (NothingToServe, ReloadRefused, DeviceError) as error:
        control.send({"failed": str(error)})
        end(str(error))
    if settings.engine == "auto" and "CUDA" not in engine.provider:
        control.send({"failed": NO_CUDA})
        end(None)
    settle_memory()
    batcher = engine.backend
    assert isinstance(batcher, Batcher)
    watch(
        lambda: batcher.running_s,
        lifecycle,
        limit_s=settings.inference_timeout_s,
        end=end,
        patience_s=0,
    )
    host = Host(batcher, engine.loaded)
    server = await host.serve(path)
    log.info("engine ready: %s with %s", ", ".join(engine.manifests), engine.provider)
    control.send({"ready": True})
    await over.wait()
    server.close()
    if not lifecycle.failure:
        await host.drain(_DRAIN_S)
    end(lifecycle.failure)


if __name__ == "__main__":
    main()
