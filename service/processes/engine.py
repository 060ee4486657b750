"""The engine in a process of its own: `python -m service.processes.engine`."""

from __future__ import annotations

import asyncio
import logging

from model.runtime import DeviceError
from service.inference.batcher import Batcher
from service.inference.bundles import (
    NothingToServe,
    ReloadRefused,
    load_runtimes,
    settle_memory,
)
from service.inference.client import Host
from service.inference.engine import Engine, open_engine
from service.processes.channel import Message
from service.processes.heartbeat import Heartbeat, Inheritance
from service.settings import Settings
from service.telemetry import logs
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


def main() -> None:
    """Compute for all workers until the supervisor says that it is enough."""
    inherited = Inheritance.take()
    settings = Settings.from_environment()
    logs.configure(settings.log_format)
    asyncio.run(_serve(settings, inherited))


async def _serve(settings: Settings, inherited: Inheritance) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    engine: Engine | None = None
    failures: list[str] = []

    def report() -> Message:
        return {"ready": bool(engine), "running_s": engine.backend.running_s if engine else 0.0}

    def receive(message: Message) -> None:
        if "leave" in message:
            over.set()

    def lose(error: Exception) -> None:
        failures.append(f"inference failed: {error}")
        loop.call_soon_threadsafe(over.set)

    def load() -> Engine:
        runtimes = load_runtimes(settings, strict=inherited.strict)
        return open_engine(runtimes, on_batch=Metrics().note_batch, on_lost=lose)

    heartbeat = Heartbeat(inherited.connection, report, receive)
    await heartbeat.begin()
    loading = asyncio.ensure_future(asyncio.to_thread(load))
    leaving = asyncio.ensure_future(over.wait())
    await asyncio.wait([loading, leaving], return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        await heartbeat.exit()
    try:
        engine = loading.result()
    except (NothingToServe, ReloadRefused, DeviceError) as error:
        await heartbeat.exit(str(error))
    settle_memory()
    assert isinstance(engine.backend, Batcher)
    host = Host(engine.backend, engine.loaded)
    server = await host.serve(inherited.listeners[0])
    log.info("engine ready: %s with %s", ", ".join(engine.manifests), engine.provider)
    await over.wait()
    server.close()
    if not failures:
        await host.drain(settings.drain_timeout_s)
    await heartbeat.exit(failures[0] if failures else None)


if __name__ == "__main__":
    main()
