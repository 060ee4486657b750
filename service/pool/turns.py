"""Who is next, and how much may wait: callers take turns, and nobody fills the queue alone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from heapq import heappop, heappush
from itertools import count

from service.inference.job import Job, QueueFull

_RETRY_S = (1.0, 2.0)
"""`Retry-After` is drawn from this range, so that clients do not return at once."""


class Turns:
    """A queue of tasks for a few places: start-time fair queueing (Goyal, Vin and Cheng, 1996).

    A task begins, in virtual time, when the task before it of the same caller ends; the earliest
    begins next. So a caller that sends many tasks waits for itself. Bulk tasks come last.

    For one event loop alone.

    Args:
        places: so many tasks have their turn at once.
        limit: of the cost of all jobs that wait or run. A caller may have as much as is left to
            others: half of it if it is alone, a third if there are two.
    """

    def __init__(self, places: int, *, limit: int) -> None:
        self.limit, self.waiting = limit, 0
        """What all jobs cost that wait or run."""
        self._free = places
        self._of_caller: Counter[Hashable] = Counter()
        self._queue: list[tuple[bool, float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._now = 0.0
        """In virtual time, the beginning of the last task that had its turn."""
        self._ends: dict[Hashable, float] = {}
        """In virtual time, the end of each caller's last task."""

    @contextmanager
    def reserve(self, job: Job, costs: Sequence[int]) -> Iterator[None]:
        """Admit a job of several tasks by the cost of its largest.

        The caller bounds how many of them run at once.

        Raises:
            QueueFull: it does not fit.
        """
        cost = max(costs)
        if self._of_caller[job.client] + cost > self.limit - self.waiting:
            raise QueueFull(random.uniform(*_RETRY_S))  # noqa: S311
        self._hold(job.client, cost)
        try:
            yield
        finally:
            self._hold(job.client, -cost)

    @asynccontextmanager
    async def take(self, job: Job, cost: int) -> AsyncIterator[None]:
        """Wait for the turn of a job's task, which lasts as long as the context."""
        begin = max(self._now, self._ends.get(job.client, 0.0))
        self._ends[job.client] = begin + cost
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._queue, (job.bulk, begin, next(self._numbers), turn))
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._give()

    def _give(self) -> None:
        while self._free and self._queue:
            _, begin, _, turn = heappop(self._queue)
            if not turn.done():  # else its caller has left
                self._free -= 1
                self._now = max(self._now, begin)
                turn.set_result(None)
        if not self._queue:
            self._ends.clear()

    def _hold(self, caller: Hashable, cost: int) -> None:
        self.waiting += cost
        self._of_caller[caller] += cost
        if not self._of_caller[caller]:
            del self._of_caller[caller]
            self._ends.pop(caller, None)
