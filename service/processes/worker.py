"""One of the processes that answer requests: `python -m service.processes.worker`."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from service.api.models import summarise
from service.app import create_app, open_here
from service.health import Health
from service.http.protocol import Http1
from service.inference.bundles import ReloadRefused
from service.inference.client import EngineClient
from service.inference.engine import Engine
from service.processes.acceptor import Acceptor
from service.processes.channel import Message
from service.processes.heartbeat import Heartbeat, Inheritance
from service.settings import Settings, SettingsError
from service.telemetry import logs
from service.telemetry.metrics import Metrics

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than any `Retry-After`, and than load balancers keep
theirs. Who comes back then does not send a request into a connection that is closing."""


def main() -> None:
    """Answer requests until the supervisor says that it is enough."""
    inherited = Inheritance.take()
    settings = Settings.from_environment().of_worker()
    logs.configure(settings.log_format, access_log=settings.access_log)
    try:
        worker = Worker(settings, inherited)
    except SettingsError as error:  # a file of keys changed since the service started
        sys.exit(f"capsnet-service: {error}")
    worker.run(sockets=[])


class Connections(set[Any]):
    """Open connections, which are counted."""

    def __init__(self, closed: Callable[[], None]) -> None:
        super().__init__()
        self._closed = closed

    def discard(self, connection: Any) -> None:
        """Forget one."""
        super().discard(connection)
        self._closed()


class Worker(uvicorn.Server):
    """uvicorn, but for the way it gets its connections and its orders."""

    def __init__(self, settings: Settings, inherited: Inheritance) -> None:
        self._settings = settings
        self._inherited = inherited
        self._app = create_app(
            settings,
            open_engine=self._open_engine,
            reload=self._ask_for_reload,
            board=inherited.board,
        )
        config = uvicorn.Config(
            self._app,
            http=partial(Http1, upload_timeout_s=settings.upload_timeout_s),  # type: ignore[arg-type]
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout_s,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        super().__init__(config)
        self._health = self._app.state.health
        self._leave_at = float("inf")
        self._joined = asyncio.Event()
        self._reloaded: asyncio.Future[Message] | None = None
        self._heartbeat = Heartbeat(inherited.connection, self._report, self._receive)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until there is a reason to stop, and end the process."""
        await super().serve(sockets)
        await self._heartbeat.exit(self._health.failure)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the supervisor."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report to the supervisor, load, and accept."""
        inherited = self._inherited
        self._acceptor = Acceptor(
            inherited.listeners,
            inherited.board,
            inherited.slot,
            serve=self._serve_connection,
            can_answer=lambda: self._health.can_answer,
        )
        self.server_state.connections = Connections(self._acceptor.count_closed)
        await self._heartbeat.begin()
        await super().startup(sockets)
        self._acceptor.resume()

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked ten times a second."""
        if self._health.failure:
            self._acceptor.close(empty=False)  # probes would keep it until the drain is over
            return True
        connections = self._acceptor.connections
        is_left = self._leave_at < float("inf") and not connections
        is_settled = connections == len(self.server_state.connections)
        over = is_left or (is_settled and time.monotonic() >= self._leave_at)
        return over or await super().on_tick(counter)

    # The supervisor

    def _report(self) -> Message:
        return {
            "ready": self._health.can_answer,
            "running_s": round(self._health.running_s, 3),
        }

    def _receive(self, message: Message) -> None:
        match message:
            case {"join": _}:
                self._joined.set()
            case {"drain": _}:
                self._health.draining = self._health.closing = True
            case {"leave": idle_s}:
                self._leave(idle_s)
            case {"reloaded": _} if self._reloaded:
                self._reloaded.set_result(message)
                self._reloaded = None

    async def _open_engine(self, metrics: Metrics, health: Health) -> Engine:
        """Load the bundles, or connect to the engine, and wait until the supervisor agrees."""
        source, self._joined = self._inherited.source, asyncio.Event()
        if source:
            client = await EngineClient(self._reconnect).connect(Path(source))
            engine = Engine(client, client.loaded)
        else:
            strict = self._inherited.strict
            engine = await open_here(self._settings, metrics, health, strict=strict)
        models = summarise(engine, self._settings).model_dump(mode="json")
        self._heartbeat.say(loaded=engine.loaded.digest, models=models)
        await self._joined.wait()
        asyncio.get_running_loop().call_soon(self._tell)
        return engine

    def _reconnect(self) -> None:
        """The engine is gone, and another will accept connections where it did."""
        self._health.loaded = None
        self._tell()
        self._loading = asyncio.ensure_future(self._app.state.load())

    def _tell(self) -> None:
        """Say that this worker can answer from now on, or cannot."""
        self._acceptor.note()
        self._heartbeat.say()

    async def _ask_for_reload(self) -> dict[str, Any]:
        """Have the supervisor replace all workers; what is loaded then.

        Raises:
            ReloadRefused: it cannot, or another reload is under way.
        """
        if self._reloaded:
            raise ReloadRefused("another reload is under way")
        self._reloaded = asyncio.get_running_loop().create_future()
        self._heartbeat.say(reload=True)
        answer = await asyncio.shield(self._reloaded)
        if answer["reloaded"] is not None:
            raise ReloadRefused(answer["reloaded"])
        models: dict[str, Any] = answer["models"]
        return models

    # Connections

    async def _serve_connection(self, connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
            connection,
        )

    def _leave(self, idle_s: float) -> None:
        """Accept no more, finish what was accepted, and close what is idle some seconds later."""
        self._acceptor.close(empty=not idle_s)
        self._health.closing = True
        self._leave_at = min(self._leave_at, time.monotonic() + idle_s)
        self._heartbeat.say()


if __name__ == "__main__":
    main()
