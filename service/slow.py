"""One thread for Python that takes milliseconds: the event loop waits for one such task at most."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from service.admission import charge_time, current_caller
from service.shared import Turns

MAX_INLINE_BYTES = 10_000
"""More bytes are read and written off the event loop: so many bytes of numbers take a millisecond.
"""
_SWITCH_S = 0.0005
"""A thread that runs Python lets the event loop go on after this long, in place of 5 ms."""
MAX_WAITING = 256
"""This many functions may wait. Beyond it, the caller that has most is refused, with 429."""
P = ParamSpec("P")
T = TypeVar("T")


class SlowThread:
    """Runs functions one after the other; callers take turns.

    A request is charged for the CPU time that it takes.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self._turns = Turns(1, limit=MAX_WAITING)
        self._executor = ThreadPoolExecutor(1, "slow")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function, unless the caller is cancelled before its turn.

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
        charge_time(seconds)
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
