"""A process that the supervisor started: what it says, and its end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Self

from service.processes.channel import Channel, Message

SILENT_TICKS = 5
"""Seconds without a word after which a process hangs, as the supervisor's own clock ticks."""
FIRST_WORD_TICKS = 120
"""The same before its first word: it imports what it needs."""
_POLL_S = 0.05


class Child:
    """One process, from its start to its end."""

    def __init__(self, module: str, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self._module = module
        self._channel = channel
        self.send = channel.send
        self.pid = process.pid
        self.report: Message = {}
        """Its last heartbeat."""
        self.silent_ticks = 0
        self.ready_ticks = 0

    @classmethod
    async def start(cls, module: str, *arguments: object, descriptors: Iterable[int]) -> Self:
        """Run `python -m module`, given the descriptor of its channel and then the arguments.

        Raises:
            OSError: no process or descriptor is left.
        """
        ours, its = socket.socketpair()
        command = [sys.executable, "-m", module, *map(str, (its.fileno(), *arguments))]
        try:
            with its:
                process = subprocess.Popen(  # noqa: ASYNC220, S603  returns when it runs
                    command,
                    pass_fds=[its.fileno(), *descriptors],
                    start_new_session=True,  # a terminal's signals reach the supervisor alone
                )
        except OSError:
            ours.close()
            raise
        return cls(module, process, await Channel.open(ours))

    def __str__(self) -> str:
        return f"{self._module} {self.pid}"

    @property
    def is_up(self) -> bool:
        """Whether it has said anything."""
        return bool(self.report)

    @property
    def is_ready(self) -> bool:
        """Whether it says that it can answer."""
        return bool(self.report.get("ready"))

    def tick(self) -> None:
        """Count a second."""
        self.silent_ticks += 1
        self.ready_ticks += self.is_ready

    def hangs(self, batch_limit_s: float) -> str | None:
        """Why it is taken to hang, if it is."""
        if self.silent_ticks > (SILENT_TICKS if self.is_up else FIRST_WORD_TICKS):
            return f"it has said nothing for {self.silent_ticks} s"
        if self.report.get("running_s", 0) > batch_limit_s:
            return f"an inference takes longer than {batch_limit_s:g} s"
        return None

    async def messages(self) -> AsyncIterator[Message]:
        """What it says other than that it lives, until it ends."""
        async for message in self._channel.messages():
            self.silent_ticks = 0
            if "ready" in message:
                self.report = message
            yield message

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  no thread, no signal
            await asyncio.sleep(_POLL_S)
        await self._channel.close()
        return code

    def kill(self) -> None:
        """End it at once, stopped or not."""
        self._process.kill()
