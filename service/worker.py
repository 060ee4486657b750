"""One of several processes that answer requests: `python -m service.worker`, started by another."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from fastapi import FastAPI

from service.app import create_app
from service.control import Control, Message
from service.inference.bundles import ReloadRefused
from service.server import Server
from service.settings import Settings
from service.telemetry import logs

log = logging.getLogger(__name__)


def main() -> None:
    """Answer what the supervisor hands over, until it says stop."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor says when to reload
    settings = Settings.from_environment().of_worker()
    logs.configure(settings.log_format)
    end = socket.socket(fileno=int(sys.argv[1]))
    Worker(create_app(settings), settings, end).run(sockets=[])


class Worker(Server):
    """Serves connections that the supervisor accepted, and reloads when all workers do.

    Args:
        app: what answers.
        settings: of this worker.
        end: of the pair of sockets to the supervisor.
    """

    def __init__(self, app: FastAPI, settings: Settings, end: socket.socket) -> None:
        super().__init__(app, settings)
        self._end = end
        self._reloaded: asyncio.Future[str | None] | None = None
        app.state.reload = self._ask_for_reload

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen to the supervisor."""
        await super().startup(sockets)
        self._control = Control(self._end, self._receive, self._stop)
        self._control.send({"up": True})

    def _receive(self, message: Message, descriptor: int | None) -> None:
        match message:
            case {"connection": _}:
                assert descriptor is not None
                self.begin(self._serve_connection(descriptor))
            case {"load": source}:
                self.begin(self._load(source))
            case {"prepare": source}:
                self.begin(self._prepare(source))
            case {"commit": _}:
                self.bundles.commit()
            case {"abort": _}:
                self.bundles.abort()
            case {"reloaded": refusal}:
                waiting, self._reloaded = self._reloaded, None
                if waiting:
                    waiting.set_result(refusal)
            case {"drain": _}:
                self.lifecycle.draining = True
            case {"stop": _}:
                self._stop()

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop; tells the supervisor if the reason is a failure."""
        if self.lifecycle.failure:
            self._control.send({"failing": True})
        return await super().on_tick(counter)

    async def _serve_connection(self, descriptor: int) -> None:
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
            connection,
        )

    async def _load(self, source: str) -> None:
        await self.load(Path(source) if source else None)
        if failure := self.lifecycle.failure:
            self._control.send({"failed": failure})
            os._exit(1)  # the supervisor says why
        self._control.send({"ready": True})

    async def _prepare(self, source: str) -> None:
        refusal = None
        try:
            await self.bundles.prepare(Path(source) if source else None)
        except Exception as error:
            if not isinstance(error, ReloadRefused):
                log.exception("reload failed")
            refusal = str(error)
        self._control.send({"prepared": refusal})

    async def _ask_for_reload(self) -> None:
        """Have all workers reload.

        Raises:
            ReloadRefused: one cannot, or another reload is under way.
        """
        if self._reloaded:
            raise ReloadRefused("another reload is under way")
        self._reloaded = asyncio.get_running_loop().create_future()
        self._control.send({"reload": True})
        if (refusal := await asyncio.shield(self._reloaded)) is not None:
            raise ReloadRefused(refusal)

    def _stop(self) -> None:
        """The supervisor says so, or is gone."""
        self.lifecycle.draining = True
        self.should_exit = True


if __name__ == "__main__":
    main()
