"""Callers take turns at what they share, such as a thread.

At a bound, the caller that holds most gives way: see `service.admission`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain
from typing import Generic, ParamSpec, TypeVar

from service.admission import add_cpu_time, current_caller
from service.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")
MAX_INLINE_BYTES = 10_000
"""More bytes are read and written off the event loop: so many bytes of numbers take a millisecond.
"""
_SWITCH_S = 0.0005
"""A thread that runs Python lets the event loop go on after this long, in place of 5 ms."""
MAX_WAITING = 256
"""This many functions may wait. Beyond it, the caller that has most is refused, with 429."""


class SlowThread:
    """Runs functions one after the other; callers take turns.

    A request is charged for the CPU time that it takes.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self._turns = Turns(1, limit=MAX_WAITING)
        self._executor = ThreadPoolExecutor(1, "slow")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function, unless this is cancelled before its turn.

        Raises:
            Busy: too many wait, and this caller has most of them.
        """

        def timed() -> tuple[T, float]:
            began = time.thread_time()
            result = function(*args, **kwargs)
            return result, time.thread_time() - began

        loop = asyncio.get_running_loop()
        async with self._turns.turn(current_caller()):
            result, seconds = await loop.run_in_executor(self._executor, timed)
        add_cpu_time(seconds)
        return result

    async def run_if_large(
        self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function that reads or writes so many bytes: at once if these are few."""
        if size > MAX_INLINE_BYTES:
            return await self.run(function, *args, **kwargs)
        return function(*args, **kwargs)

    def close(self) -> None:
        """End the thread once its task is done."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Turns:
    """Lets callers use something in turn, so many at once, for one event loop alone.

    Args:
        places: how many use it at once.
        limit: how many may wait. At the limit, the last one of the caller that has most waiting is
            refused.
    """

    def __init__(self, places: int, *, limit: int) -> None:
        self._free, self._limit = places, limit
        self._waiting = RoundRobin[asyncio.Future[None]]()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, which lasts until the context ends.

        Raises:
            Busy: too many wait.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, caller: Hashable) -> None:
        if self.waiting >= self._limit:
            if (last := self._waiting.take_from_largest(caller)) is None:
                raise _full()
            if not last.done():  # else it is leaving
                last.set_exception(_full())
        turn = asyncio.get_running_loop().create_future()
        self._waiting.push(caller, turn)
        try:
            await turn
        except BaseException:
            self._waiting.remove(caller, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # its turn came as it left
            raise

    def _pass_on(self) -> None:
        """Give a turn to the next one that waits."""
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # else it is leaving
                turn.set_result(None)
                return
        self._free += 1


def _full() -> Busy:
    return Busy("the queue is full; try again in 1 s", retry_after_s=1)


class RoundRobin(Generic[T]):
    """Items of callers, who take turns. The items of one caller keep their order."""

    def __init__(self) -> None:
        self._of: dict[Hashable, deque[T]] = {}
        """The caller whose turn it is comes first."""

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._of.values())

    def push(self, caller: Hashable, item: T) -> None:
        """Add an item behind the others of its caller."""
        self._of.setdefault(caller, deque()).append(item)

    def return_to_front(self, caller: Hashable, item: T) -> None:
        """Add an item before the others of its caller."""
        self._of.setdefault(caller, deque()).appendleft(item)

    def pop(self) -> T:
        """Take the next item of the caller whose turn it is."""
        caller = next(iter(self._of))
        items = self._of.pop(caller)
        item = items.popleft()
        if items:
            self._of[caller] = items
        return item

    def remove(self, caller: Hashable, item: T) -> None:
        """Take out an item, if it is there."""
        items = self._of.get(caller)
        if items and item in items:
            items.remove(item)
            if not items:
                del self._of[caller]

    def take_from_largest(self, caller: Hashable) -> T | None:
        """Take the last item of the caller with most items; None if that is this caller."""
        largest = max(self._of, key=lambda other: len(self._of[other]))
        if len(self._of[largest]) <= len(self._of.get(caller, ())) + 1:
            return None
        item = self._of[largest][-1]
        self.remove(largest, item)
        return item
