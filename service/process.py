"""A process that the supervisor starts, and starts again when it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from service.control import Control, Message

log = logging.getLogger(__name__)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 30.0
"""Between the end of a process and the start of the next in its place."""
_STARTS = 5
"""Processes that end one after the other without ever being ready; then no other starts."""


class Process:
    """One process at a time, and another when it ends.

    Args:
        module: what `python -m` runs; it is given the descriptor of its socket to this process.
        arguments: what else it is given.
        receive: called with this and each message.
        ended: called with the process id of each that ended.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        receive: Callable[[Process, Message], None],
        ended: Callable[[int], None],
    ) -> None:
        self._module = module
        self.arguments = arguments
        self._receive = receive
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._control: Control | None = None
        self.up = False
        """It runs an event loop."""
        self.ready = False
        self._stopping = asyncio.Event()

    def __repr__(self) -> str:
        state = "ready" if self.ready else "up" if self.up else "down"
        return f"Process({self.name}, {state})"

    @property
    def name(self) -> str:
        """For people: what it is, and its process id."""
        return f"{self._module} {self._pid}"

    @property
    def _pid(self) -> int:
        return self._process.pid if self._process else 0

    async def run(self) -> int:
        """Start it, and again for as long as it is wanted.

        Returns:
            The exit code of the last one.

        Raises:
            RuntimeError: it ended several times without being ready.
        """
        failures = 0
        while True:
            code = await self._run_once()
            failures = 0 if self.ready else failures + 1
            self.up = self.ready = False
            self._ended(self._pid)
            if self._stopping.is_set():
                return code
            if failures == _STARTS:
                raise RuntimeError(f"{self.name} ended {failures} times before it was ready")
            wait_s = min(_FIRST_WAIT_S * 4**failures, _LONGEST_WAIT_S)
            log.error("%s exited with code %d; restarting in %g s", self.name, code, wait_s)
            if await self._stops_within(wait_s):
                return code

    def send(self, message: Message, descriptor: int | None = None) -> bool:
        """Send a message, with an open descriptor if there is one; whether it could be sent."""
        return self._control is not None and self._control.send(message, descriptor)

    def stop(self) -> None:
        """Have it end, and none start in its place."""
        self._stopping.set()
        self.send({"stop": True})

    def kill(self) -> None:
        """End it at once, and start none in its place."""
        self._stopping.set()
        if self._process and self._process.returncode is None:
            self._process.kill()

    async def _stops_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._stopping.wait(), seconds)
        return False

    async def _run_once(self) -> int:
        ours, its = socket.socketpair()
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module, str(its.fileno()), *self.arguments),
                pass_fds=[its.fileno()],
                start_new_session=True,  # a terminal's signals reach the supervisor alone
            )
        self._control = Control(ours, self._note, lambda: None)
        if self._stopping.is_set():
            self.send({"stop": True})
        code = await self._process.wait()
        self._control.close()
        return code

    def _note(self, message: Message, _descriptor: int | None) -> None:
        self.up = True
        self.ready = self.ready or "ready" in message
        self._receive(self, message)
