"""One thread for Python that takes milliseconds: the event loop waits for one such task at most."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from service.inference.price import charge_time

P = ParamSpec("P")
T = TypeVar("T")


_SWITCH_S = 0.0005
"""A thread that runs Python lets the event loop go on after this long, in place of 5 ms."""


class SlowThread:
    """Runs functions one after the other. A request is charged for the CPU time that it takes."""

    def __init__(self) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self._executor = ThreadPoolExecutor(1, "slow")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function, unless the caller is cancelled before its turn."""

        def timed() -> tuple[T, float]:
            began = time.thread_time()
            result = function(*args, **kwargs)
            return result, time.thread_time() - began

        result, seconds = await asyncio.get_running_loop().run_in_executor(self._executor, timed)
        charge_time(seconds)
        return result

    def close(self) -> None:
        """End the thread once its task is done."""
        self._executor.shutdown(wait=False, cancel_futures=True)
