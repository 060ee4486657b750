"""A place for a process: another starts in it when one ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from service.processes.channel import Message
from service.processes.child import Child

log = logging.getLogger(__name__)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 30.0
"""Between the end of a process and the start of the next in its place."""
_STARTS = 5
"""Failed starts after which a place that never had a process ready has none to hope for."""
_SOUND_TICKS = 60
"""Seconds of being ready after which earlier failures do not count."""


class Place:
    """Starts a process, and another when it ends, for ever and with growing waits.

    Args:
        slot: of the board, for whatever process is here.
        start: starts one.
        receive: called with this and each message.
        ended: called when one has ended.
    """

    def __init__(
        self,
        slot: int,
        *,
        start: Callable[[Place], Awaitable[Child]],
        receive: Callable[[Place, Message], None],
        ended: Callable[[], None],
    ) -> None:
        self.slot = slot
        self._start = start
        self._receive = receive
        self._ended = ended
        self.child: Child | None = None
        self.loaded: str | None = None
        """Which bundles its process has loaded, once it has."""
        self.models: Any = None
        """What it says of them."""
        self.has_joined = False
        """Its process was told to answer."""
        self.reason: str | None = None
        """Why its last process ended, or could not start."""
        self.is_outdated = False
        """Its process found other bundles than those that are served: none starts for now."""
        self.starts = 0
        self._failures = 0
        self._refused = False
        """A process said that it cannot load."""
        self._ended_well = True
        self._stopping = False
        self._wake = asyncio.Event()
        self.run = asyncio.ensure_future(self._keep())

    def __repr__(self) -> str:
        return f"Place({self.child}, {'ready' if self.is_ready else self.reason or 'starting'})"

    @property
    def is_ready(self) -> bool:
        """Whether its process can answer."""
        return self.child is not None and self.child.is_ready

    @property
    def is_hopeless(self) -> bool:
        """Whether its processes say why they cannot load, or have failed many times."""
        return self._refused or self._failures >= _STARTS

    @property
    def ended_well(self) -> bool:
        """Whether its last process ended by itself and without an error, if there was one."""
        return self.run.done() and self._ended_well

    def send(self, **message: object) -> None:
        """Tell its process something, if there is one."""
        if self.child:
            self.child.send(**message)

    def join(self) -> None:
        """Have its process answer."""
        self.has_joined = True
        self.send(join=True)

    def reject(self) -> None:
        """End its process, because it has loaded other bundles than those that are served."""
        self.is_outdated = True
        self.send(leave=0)

    def try_again(self) -> None:
        """Start one now, if none is there."""
        self.is_outdated = False
        self._wake.set()

    def stop(self, idle_s: float = 0) -> None:
        """Have its process finish what it accepted and end, and start none.

        Args:
            idle_s: how long its idle connections may still bring a request.
        """
        self._stopping = True
        self._wake.set()
        if self.child and self.child.is_up:
            self.child.send(leave=idle_s)
        else:  # it has accepted nothing
            self.kill()

    def kill(self) -> None:
        """End its process at once."""
        if self.child:
            self.child.kill()

    def _note(self, message: Message) -> None:
        if "loaded" in message:
            self.loaded, self.models = message["loaded"], message["models"]
            self.reason, self.has_joined = None, False
        if "failed" in message:
            self.reason, self._refused = message["failed"], True

    async def _keep(self) -> None:
        while not self._stopping:
            await self._run_once()
            self._ended()
            if not self._stopping:
                await self._wait()

    async def _wait(self) -> None:
        """Wait before the next start."""
        wait_s = None
        if not self.is_outdated:
            wait_s = min(_FIRST_WAIT_S * 4**self._failures, _LONGEST_WAIT_S)
            log.error("%s; another starts in %g s", self.reason, wait_s)
        self._wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)

    async def _run_once(self) -> None:
        """Start a process and follow it to its end."""
        self.starts += 1
        try:
            child = self.child = await self._start(self)
        except OSError as error:
            self._failures += 1
            self.reason = f"a process cannot be started: {error}"
            return
        if self._stopping:
            child.kill()
        said = None
        async for message in child.messages():
            said = message.get("failed", said)
            self._note(message)
            self._receive(self, message)
        code = await child.wait()
        self.child, self.loaded, self.has_joined = None, None, False
        self._failures = 0 if child.ready_ticks >= _SOUND_TICKS else self._failures + 1
        self._ended_well = code == 0 or not child.is_up or not self._stopping
        self.reason = said or f"{child} ended with code {code}"
