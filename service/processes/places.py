"""All processes of one service: what they inherit, what they leave, and which of them hang."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from service.processes.board import Board
from service.processes.channel import Message
from service.processes.child import Child
from service.processes.generation import Generation
from service.processes.place import Place
from service.processes.plan import Plan

log = logging.getLogger(__name__)
WORKER, ENGINE = "service.processes.worker", "service.processes.engine"


class Places:
    """Makes generations, and a tick for each second."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        receive: Callable[[Place, Message], None],
        changed: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._receive, self._changed = receive, changed
        self.board = Board.create(max(64, 4 * plan.workers))
        self._free = set(range(self.board.slots))
        self._places: set[Place] = set()
        self._sockets = count()
        self.restarts = self.kills = 0

    @property
    def has_room(self) -> bool:
        """Whether there are slots for another generation."""
        return len(self._free) > self._plan.workers

    def accepts(self, generation: Generation) -> bool:
        """Whether a worker of a generation still accepts connections."""
        return any(self.board.accepts(place.slot) for place in generation.workers)

    def create(self, listeners: Sequence[socket.socket], *, strict: bool) -> Generation:
        """Start the workers of a generation, and its engine.

        Raises:
            OSError: there is no descriptor for the engine's socket.
        """
        engine, path = None, ""
        if self._plan.shared_engine:
            path = str(self._folder / f"engine-{next(self._sockets)}")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            engine = self._place(ENGINE, [listener], strict=strict)
            engine.run.add_done_callback(lambda _: listener.close())
        workers = [
            self._place(WORKER, listeners, source=path, strict=strict)
            for _ in range(self._plan.workers)
        ]
        return Generation(workers, engine)

    def tick(self) -> None:
        """Count a second, and kill what hangs."""
        for child in [place.child for place in self._places if place.child]:
            child.tick()
            if reason := child.hangs(self._plan.inference_timeout_s):
                log.error("%s is killed: %s", child, reason)
                self.kills += 1
                child.kill()

    def kill(self) -> None:
        """End all at once."""
        for place in self._places:
            place.stop()
            place.kill()

    def _place(
        self, module: str, listeners: Sequence[socket.socket], *, source: str = "", strict: bool
    ) -> Place:
        slot = min(self._free)
        self._free.remove(slot)
        sockets = [one.fileno() for one in listeners]

        async def start(place: Place) -> Child:
            first = place.starts == 1
            self.restarts += not first
            child = await Child.start(
                module,
                self.board.descriptor,
                slot,
                ",".join(map(str, sockets)),
                source,
                "strict" if strict and first else "",
                descriptors=[self.board.descriptor, *sockets],
            )
            self.board.take(slot, child.pid)
            return child

        place = Place(slot, start=start, receive=self._receive, ended=lambda: self._clear(slot))
        self._places.add(place)
        place.run.add_done_callback(lambda _: self._forget(place, slot))
        return place

    def _clear(self, slot: int) -> None:
        """Take away what a process has left; its counters go on in the next."""
        self.board.clear(slot)
        for path in self._folder.glob(f"gauge_live*_{slot}.db"):
            path.unlink()
        self._changed()

    def _forget(self, place: Place, slot: int) -> None:
        self._places.remove(place)
        self._free.add(slot)
        self._changed()
