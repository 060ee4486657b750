"""A function that computes when it is let, a clock that stands, and a batcher with them."""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from service.inference.batcher import Batcher, Queue, Results

PATIENCE_S = 10
"""How long a test waits for what should happen at once, before it fails."""


def double(rows: list[Any]) -> Sequence[Any]:
    """Double numbers; fail on "poison"."""
    if "poison" in rows:
        raise ValueError("poison")
    return [2 * row for row in rows]


class Gate:
    """A function that notes its batches and threads, and computes one batch each time it is let."""

    def __init__(
        self, run: Callable[[list[Any]], Sequence[Any]] = double, *, is_open: bool = False
    ) -> None:
        self.batches: list[list[Any]] = []
        self.threads: set[int] = set()
        self._run = run
        self._is_open = is_open
        self._entered = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)

    def __call__(self, rows: list[Any]) -> Sequence[Any]:
        """Compute a batch."""
        self.batches.append(rows)
        self.threads.add(threading.get_ident())
        self._entered.release()
        assert self._is_open or self._may_go.acquire(timeout=PATIENCE_S)
        return self._run(rows)

    def let(self, batches: int = 1) -> None:
        """Let some batches finish."""
        self._may_go.release(batches)

    async def running(self) -> None:
        """Wait until the next batch is inside."""
        assert await asyncio.to_thread(self._entered.acquire, timeout=PATIENCE_S)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time, in seconds."""
        return self.now


@asynccontextmanager
async def batching(
    gate: Gate,
    *keys: Hashable,
    max_rows: int = 4,
    batch_s: float = math.inf,
    **settings: Any,
) -> AsyncIterator[Batcher]:
    """A batcher whose queues, by default "q", lead to the gate, which opens at the end."""
    queues = {key: Queue(gate, max_rows, batch_s=batch_s) for key in keys or ("q",)}
    batcher = Batcher(queues, **settings)
    try:
        yield batcher
    finally:
        gate.let(100)
        assert await asyncio.to_thread(batcher.close, PATIENCE_S)


def start(
    batcher: Batcher, *rows: Any, key: Hashable = "q", caller: Hashable = None
) -> asyncio.Future[Results]:
    """Queue some rows; a wait of more than PATIENCE_S for their results fails."""
    call = batcher.submit(key, rows, caller=caller)
    call.get_loop().call_later(PATIENCE_S, _give_up, weakref.ref(call))
    return call


def _give_up(call: weakref.ref[asyncio.Future[Results]]) -> None:
    future = call()
    if future is not None and not future.done():
        future.set_exception(TimeoutError(f"no results within {PATIENCE_S} s"))


async def rows_of(*calls: asyncio.Future[Results]) -> list[list[Any]]:
    """What each call was given."""
    return [(await call).rows for call in calls]


async def until_free(batcher: Batcher) -> None:
    """Wait until no batch runs. Results are there a moment before, while the clock has moved."""
    async with asyncio.timeout(PATIENCE_S):
        while batcher.running_s:  # noqa: ASYNC110  the thread tells no loop
            await asyncio.sleep(0)
