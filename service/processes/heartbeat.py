"""A child's side: what it inherits, what it tells the supervisor every second, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from service.processes.board import FOLDER, Board
from service.processes.channel import Channel, Message
from service.telemetry.metrics import write_as

_EVERY_S = 1.0


@dataclass(frozen=True)
class Inheritance:
    """What the supervisor starts a child with: its arguments are descriptors and words."""

    connection: socket.socket
    """To the supervisor."""
    board: Board
    slot: int
    listeners: list[socket.socket]
    source: str
    """The path of an engine's socket; "": this process computes by itself."""
    strict: bool
    """Whether a broken bundle is an error."""

    @classmethod
    def take(cls) -> Self:
        """Read the arguments; signals are the supervisor's alone."""
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        _, connection, board, slot, listeners, source, strict = sys.argv
        write_as(int(slot))
        return cls(
            socket.socket(fileno=int(connection)),
            Board(int(board)),
            int(slot),
            [socket.socket(fileno=int(one)) for one in listeners.split(",")],
            source,
            bool(strict),
        )


class Heartbeat:
    """Reports to the supervisor, and passes on what it says."""

    def __init__(
        self,
        connection: socket.socket,
        report: Callable[[], Message],
        receive: Callable[[Message], None],
    ) -> None:
        self._connection = connection
        self._report = report
        self._receive = receive
        self._orphaned = False

    async def begin(self) -> None:
        """Report from here on."""
        self._channel = await Channel.open(self._connection)
        self._tasks = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._beat())]

    def say(self, **message: Any) -> None:
        """Say something else, and how it stands now."""
        self._channel.send(**message)
        self._channel.send(**self._report())

    async def exit(self, failure: str | None = None) -> NoReturn:
        """Say why, if it is a failure, and end the process, whatever its threads are doing."""
        for task in self._tasks:
            task.cancel()
        if failure:
            self._channel.send(failed=failure)
        await self._channel.close()
        if self._orphaned:  # nobody else takes away what the supervisor has left
            shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if failure else 0)

    async def _beat(self) -> None:
        while True:
            self._channel.send(**self._report())
            await asyncio.sleep(_EVERY_S)

    async def _listen(self) -> None:
        async for message in self._channel.messages():
            self._receive(message)
        self._orphaned = True
        self._receive({"leave": 0})
