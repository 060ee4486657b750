"""Opens the port, keeps the workers running, and reloads by a second generation of them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.processes.board import State
from service.processes.channel import Message
from service.processes.generation import Generation
from service.processes.place import Place
from service.processes.places import Places
from service.processes.plan import Plan

log = logging.getLogger(__name__)
_RELOAD_TIMEOUT_S = 300.0
_SWITCH_TIMEOUT_S = 2.0
"""How long a reload waits for each old worker to stop accepting."""
_IDLE_S = 5.0
"""How long idle connections to replaced workers may still bring a request."""
_MARGIN_S = 10.0
"""Beyond its own limits, what a process may take to end before it is killed."""
_UNREADY_TICKS = 60
"""Seconds without a ready worker, once there was one, after which the service has failed."""


class Supervisor:
    """Workers accept from the port that this opens.

    SIGTERM drains them; SIGHUP replaces them by others, with the bundles that are on disk then. One
    that hangs is killed and one that ends is replaced. Nothing healthy is ended: the service fails
    only if no worker can start, or none was ready for a minute.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._places = Places(plan, folder, receive=self._receive, changed=self._look)
        self._listeners: list[socket.socket] = []
        self._serving = Generation([])
        self._others: set[Generation] = set()
        """On trial or ending."""
        self._unready_ticks = -1
        """Since a worker was ready; -1 before the first was."""
        self._failure: str | None = None
        self._signals = 0
        self._over = asyncio.Event()
        self._changed = asyncio.Event()
        self._reloading = self._reload_again = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> str | None:
        """Serve until there is a reason to stop: the failure, if it is one."""
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, has_terminal())
        try:
            self._listen()
            self._serving = self._places.create(self._listeners, strict=False)
        except OSError as error:
            return f"cannot listen on {self._plan.host}:{self._plan.port}: {error}"
        ticking = self._begin(self._tick())
        await self._over.wait()
        for listener in self._listeners:
            listener.close()
        await asyncio.gather(*map(self._retire, [self._serving, *self._others]))
        ticking.cancel()
        failed = [one for one in self._serving.places if not one.ended_well]
        if failed and self._signals < 2:
            self._fail(failed[0].reason or "a process had to be killed")
        return self._failure

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fail(self, reason: str) -> None:
        """End the service; the first reason counts."""
        self._failure = self._failure or reason
        self._over.set()

    def _listen(self) -> None:
        host, port = self._plan.host, self._plan.port
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.create_server(address[:2], family=family, backlog=2048)
            listener.setblocking(False)
            self._listeners.append(listener)
        log.info("listening on http://%s:%d with %d workers", host, port, self._plan.workers)

    def _receive(self, place: Place, message: Message) -> None:
        if "reload" in message:
            self._begin(self._reload_for(place))
        if self._signals:  # it may have started since
            place.send(drain=True)
        self._look()

    def _look(self) -> None:
        """Decide what follows from what the processes have said, and tell them of it."""
        serving, places = self._serving, self._places
        serving.admit()
        ready = len(serving.ready)
        if ready:
            if self._unready_ticks < 0 and self._reload_again:
                self._begin(self._reload())
            self._unready_ticks = 0
        elif self._unready_ticks < 0 and serving.places and serving.is_hopeless:
            self._fail(serving.reason or "no process can start")
        places.board.state = State(
            self._plan.workers, ready, serving.outdated, places.restarts, places.kills
        )
        self._changed.set()

    async def _tick(self) -> None:
        """Each second, look for what processes do not say."""
        while True:
            await asyncio.sleep(1)
            self._places.tick()
            self._unready_ticks += self._unready_ticks >= 0
            if self._unready_ticks > _UNREADY_TICKS:
                self._fail(f"no worker was ready for {_UNREADY_TICKS} s: {self._serving.reason}")
            self._look()

    async def _until(self, true: Callable[[], object], timeout_s: float) -> bool:
        """Wait until something is true, or for as long as that may take; whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not true():
                    self._changed.clear()
                    await self._changed.wait()
        return bool(true())

    # The end

    def _drain(self) -> None:
        """Take requests for the grace period, then end; at a second signal, at once."""
        self._signals += 1
        if self._signals > 1:
            self._places.kill()
            self._over.set()
            return
        grace_s = self._plan.drain_grace_s
        log.info("draining: still accepting requests for %g s", grace_s)
        for place in self._serving.workers:
            place.send(drain=True)
        asyncio.get_running_loop().call_later(grace_s, self._over.set)

    async def _retire(self, generation: Generation, idle_s: float = 0) -> None:
        """Have a generation finish what it accepted, within its limits, and end."""
        self._others.add(generation)
        ending = asyncio.ensure_future(generation.end(idle_s))
        await asyncio.wait([ending], timeout=idle_s + self._plan.drain_timeout_s + _MARGIN_S)
        for place in generation.places:
            place.kill()
        await ending
        self._others.discard(generation)

    # Reload

    def _hang_up(self, had_terminal: bool) -> None:  # noqa: FBT001
        """Reload, now or after what is under way; or end, if the terminal was closed."""
        if had_terminal and not has_terminal():
            self._drain()
        elif self._reloading or self._unready_ticks < 0:
            log.info("the next reload waits until the workers are ready")
            self._reload_again = True
        else:
            self._begin(self._reload())

    async def _reload_for(self, place: Place) -> None:
        refusal = await self._reload()
        models = next((one.models for one in self._serving.workers), None)
        place.send(reloaded=refusal, models=models)

    async def _reload(self) -> str | None:
        """Replace all workers by others with the bundles on disk, or none; the reason if none."""
        if self._signals or self._over.is_set():
            return "the service is ending"
        if self._reloading or not self._places.has_room:
            return "another reload is under way"
        self._reloading, self._reload_again = True, False
        try:
            refusal = await self._replace(self._places.create(self._listeners, strict=True))
        except OSError as error:
            refusal = str(error)
        self._reloading = False
        if refusal is not None:
            log.error("reload failed: %s", refusal)
        if self._reload_again:
            self._begin(self._reload())
        return refusal

    async def _replace(self, new: Generation) -> str | None:
        """Let a generation serve once all its workers have loaded the same; the reason if not."""
        self._others.add(new)
        loaded = await self._until(
            lambda: new.reason or new.is_loaded or self._over.is_set(), _RELOAD_TIMEOUT_S
        )
        refusal = new.reason
        if not loaded:
            refusal = f"a worker took longer than {_RELOAD_TIMEOUT_S:g} s"
        elif not refusal and new.is_mixed:
            refusal = "the bundles changed while they were loaded"
        if refusal or self._over.is_set():
            self._begin(self._retire(new))
            return refusal or "the service is ending"
        old, self._serving = self._serving, new
        self._others.discard(new)
        self._look()
        await self._until(lambda: len(new.ready) == len(new.workers), _SWITCH_TIMEOUT_S)
        self._begin(self._retire(old, _IDLE_S))
        await self._until(lambda: not self._places.accepts(old), _SWITCH_TIMEOUT_S)
        return None


def has_terminal() -> bool:
    """Whether standard input is a terminal that is still there."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True
