"""What clients share has an owner, a bound and turns.

An *owner* is the key or the address of a client. At the bound, the owner that holds most gives way
to the others. Owners take turns, and the one that has used least goes first.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from itertools import islice

from service.inference.job import QueueFull

IDLE_BYTES = 16_384
"""A connection without a request takes about 7 kB, and a head of 8 kB may be arriving on it."""
_SPARE_DESCRIPTORS = 256
"""File descriptors that connections leave for everything else."""
_LOOKED_AT = 64
"""Of so many connections, one is dropped: those that have waited longest for a request."""
_REMEMBERED = 1_000


def max_connections(budget_bytes: int) -> int:
    """Return how many connections a process may hold.

    Its file descriptors decide, and a quarter of its bytes.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_bytes = budget_bytes // 4 // IDLE_BYTES
    return max(1, min(by_bytes, max(descriptors // 2, descriptors - _SPARE_DESCRIPTORS)))


class Connections:
    """The open connections of all addresses.

    A new connection is always accepted. Beyond the limit another one is dropped for it: of those
    that have waited longest for a request, one of the address that has the most connections. A
    connection is kept while its request is being answered.

    Args:
        limit: of connections.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._of_owner: Counter[Hashable] = Counter()
        self._resting: dict[Callable[[], None], Hashable] = {}
        """The owners of the connections that may be dropped, by what drops them, oldest first."""

    @property
    def count(self) -> int:
        """How many are open."""
        return self._of_owner.total()

    def open(self, owner: Hashable, drop: Callable[[], None]) -> None:
        """Count a new connection, and drop another one if there are too many.

        Args:
            owner: its address.
            drop: ends it; `close` is called then.
        """
        self._of_owner[owner] += 1
        if self.count > self.limit and self._resting:
            oldest = islice(self._resting.items(), _LOOKED_AT)
            drop_other, _ = max(oldest, key=lambda resting: self._of_owner[resting[1]])
            del self._resting[drop_other]
            drop_other()
        self._resting[drop] = owner

    def rest(self, owner: Hashable, drop: Callable[[], None]) -> None:
        """The connection waits for a request, or for more of one."""
        self._resting.pop(drop, None)
        self._resting[drop] = owner

    def work(self, drop: Callable[[], None]) -> None:
        """The connection's request is being answered."""
        self._resting.pop(drop, None)

    def close(self, owner: Hashable, drop: Callable[[], None]) -> None:
        """The connection has ended."""
        self._resting.pop(drop, None)
        self._of_owner[owner] -= 1
        if not self._of_owner[owner]:
            del self._of_owner[owner]


class Turns:
    """Lets owners use something in turn, so many at once, for one event loop alone.

    The owner that has used it for the shortest time goes first. One that comes anew has used as
    much as the one whose turn it was last, so nobody saves up time.

    Args:
        places: how many use it at once.
        limit: how many may wait. At the limit, the last one of the owner that has most waiting is
            refused.
    """

    def __init__(self, places: int, *, limit: int) -> None:
        self._free, self._limit = places, limit
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._used_s: dict[Hashable, float] = {}
        """Seconds that each owner has used, from a common beginning."""
        self._used_last_s = 0.0
        """Those of the owner whose turn it was last."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait for a turn. The owner is charged for the seconds until the context ends.

        Raises:
            QueueFull: too many wait.
        """
        loop = asyncio.get_running_loop()
        await self._wait(owner, loop)
        began = loop.time()
        try:
            yield
        finally:
            self._used_s[owner] = self._used(owner) + loop.time() - began
            self._free += 1
            self._start_next()

    async def _wait(self, owner: Hashable, loop: asyncio.AbstractEventLoop) -> None:
        if self._free:
            self._start(owner)
            return
        if self.waiting >= self._limit:
            self._refuse_one(owner)
        turn = loop.create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn in self._waiting.get(owner, ()):
                self._remove(owner, turn)
            elif not turn.cancelled() and turn.exception() is None:
                self._free += 1  # its turn came as it left
                self._start_next()
            raise

    def _refuse_one(self, owner: Hashable) -> None:
        """Make room for one of this owner.

        Raises:
            QueueFull: no other owner has more waiting.
        """
        most = max(self._waiting, key=lambda other: len(self._waiting[other]))
        if len(self._waiting[most]) <= len(self._waiting.get(owner, ())) + 1:
            raise QueueFull(1)
        last = self._waiting[most][-1]
        self._remove(most, last)
        if not last.done():  # else it is leaving
            last.set_exception(QueueFull(1))

    def _remove(self, owner: Hashable, turn: asyncio.Future[None]) -> None:
        self._waiting[owner].remove(turn)
        if not self._waiting[owner]:
            del self._waiting[owner]

    def _start_next(self) -> None:
        while self._free and self._waiting:
            owner = min(self._waiting, key=self._used)
            turn = self._waiting[owner][0]
            self._remove(owner, turn)
            if not turn.done():  # else it is leaving
                self._start(owner)
                turn.set_result(None)

    def _start(self, owner: Hashable) -> None:
        self._free -= 1
        self._used_last_s = self._used(owner)
        if len(self._used_s) > _REMEMBERED:
            recent = self._used_s.items()
            self._used_s = {one: used_s for one, used_s in recent if used_s > self._used_last_s}

    def _used(self, owner: Hashable) -> float:
        return max(self._used_s.get(owner, 0.0), self._used_last_s)
