"""Compute the rows of many clients in batches, on one thread; a lone quick row on the event loop.

Knows nothing of arrays or networks: a row is anything, and the function of a queue turns a list of
rows into a list of results.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from service.errors import Unavailable
from service.shared import RoundRobin

log = logging.getLogger(__name__)


class Results(NamedTuple):
    """The results of one call."""

    rows: list[Any]
    """The result of each row, or the exception that computing that row alone raised."""
    waited_s: float
    """Seconds from submission until the first row was in a batch."""
    computed_s: float
    """Seconds from then until the last row was computed."""
    own_s: float
    """This call's share of the seconds of its batches."""


@dataclass(eq=False)
class _Call:
    """The rows of one caller, and the results so far."""

    rows: Sequence[Any]
    caller: Hashable
    future: asyncio.Future[Results]
    submitted: float
    taken: int = 0
    """The number of rows that went into batches."""
    started: float = 0.0
    own_s: float = 0.0
    results: list[Any] = field(default_factory=list)
    """Results in order: batches are formed in order and computed one after the other."""

    def finished(self, now: float) -> Results:
        """The results, once the last row is computed."""
        waited_s, computed_s = self.started - self.submitted, now - self.started
        return Results(self.results, waited_s, computed_s, self.own_s)


OnBatch = Callable[[Any, int, float], None]
_Row = tuple[_Call, Any]
_Finished = tuple[_Call, Results]


@dataclass(eq=False)
class Queue:
    """The function that computes some rows, what it costs, and the calls that wait for it."""

    run: Callable[[list[Any]], Sequence[Any]]
    """A function that returns one result for each row, in order."""
    max_rows: int
    """The largest batch."""
    batch_s: float = math.inf
    """A batch takes about this long at most."""
    calls: RoundRobin[_Call] = field(default_factory=RoundRobin, init=False)
    """The calls with waiting rows."""
    last_s: float = field(default=0.0, init=False)
    last_rows: int = field(default=1, init=False)
    """Seconds and rows of the last batch."""

    @property
    def most_rows(self) -> int:
        """The largest next batch, by the seconds that its rows take."""
        row_s = self.last_s / self.last_rows
        return max(1, int(min(self.max_rows, self.batch_s / row_s))) if row_s else self.max_rows


class Batcher:
    """Forms batches of all waiting rows whenever its thread is free, up to the queue's limit.

    There is no fixed delay.

    In the service, each graph of each bundle has a queue. Queues take turns at the thread, and
    callers take turns at a queue.

    Rows whose caller has left are skipped, also those whose time is over. A batch that fails is
    retried by halves, so that a bad row fails alone.

    Args:
        queues: by the name that `submit` takes.
        clock: monotonic seconds.
        warm_up: called once on the thread before any batch; the constructor waits.
        on_batch: called after every run, where it was computed, with the queue's name, the number
            of rows and the seconds.
        quick_s: a row that waits alone is computed on the event loop, because it would take longer
            to wake the thread, if the last batch of its queue took at most this many seconds.
            With 0, only the thread computes.

    Raises:
        Exception: what `warm_up` raised.
    """

    def __init__(
        self,
        queues: Mapping[Hashable, Queue],
        *,
        clock: Callable[[], float] = time.monotonic,
        warm_up: Callable[[], None] = lambda: None,
        on_batch: OnBatch = lambda _name, _rows, _seconds: None,
        quick_s: float = 0.0,
    ) -> None:
        self._queues = dict(queues)
        self._clock = clock
        self._on_batch = on_batch
        self._quick_s = quick_s
        self._running_since: float | None = None
        self._closed = False
        self._waking: asyncio.AbstractEventLoop | None = None
        """The event loop that calls `_wake` in its next round."""
        self._changed = threading.Condition()
        warm: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(warm_up, warm), name="inference", daemon=True
        )
        self._thread.start()
        warm.result()

    @property
    def running_s(self) -> float:
        """How long the running batch has taken so far, in seconds; 0 if none runs."""
        since = self._running_since
        return 0.0 if since is None else self._clock() - since

    def submit(
        self, name: Hashable, rows: Sequence[Any], *, caller: Hashable = None
    ) -> asyncio.Future[Results]:
        """Queue rows, and return a future of their results, in order, on the running event loop.

        Cancelling the future drops the rows that are not yet in a batch.

        Args:
            name: of the queue.
            rows: that are computed.
            caller: with whom others take turns.

        Raises:
            Unavailable: `close` was called.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        call = _Call(rows, caller, future, self._clock())
        with self._changed:
            if self._closed:
                raise Unavailable("the service is shutting down", retry_after_s=1)
            self._queues[name].calls.push(caller, call)
            if self._waking is not loop:
                self._waking = loop
                loop.call_soon(self._wake)
        return future

    def close(self, timeout_s: float | None = None) -> bool:
        """Take no more rows, finish those that were accepted, and wait for the thread to end.

        Returns:
            Whether it ended within the timeout; without one, this waits for as long as it takes.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def _has_calls(self) -> bool:
        return any(queue.calls for queue in self._queues.values())

    def _wake(self) -> None:
        """Have all rows computed that the event loop had ready, so that batches are larger."""
        with self._changed:
            self._waking = None
            if self._running_since is not None or not self._is_lone_and_quick:
                self._changed.notify()
                return
            name, batch = self._take()
        self._compute_batch(name, batch)

    @property
    def _is_lone_and_quick(self) -> bool:
        """Whether one row waits in all queues, and takes no longer than `quick_s`."""
        waiting = [(queue, call) for queue in self._queues.values() for call in queue.calls]
        if len(waiting) != 1:
            return False
        ((queue, call),) = waiting
        return len(call.rows) == 1 and 0 < queue.last_s <= self._quick_s

    def _work(self, warm_up: Callable[[], None], warm: Future[None]) -> None:
        try:
            warm_up()
        except Exception as error:  # noqa: BLE001  the constructor raises it
            warm.set_exception(error)
            return
        warm.set_result(None)
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._running_since is None and (self._closed or self._has_calls)
                )
                if not self._has_calls:
                    return
                name, batch = self._take()
            self._compute_batch(name, batch)

    def _compute_batch(self, name: Hashable, batch: list[_Row]) -> None:
        """Compute the batch that was taken, if any rows are left in it."""
        if batch:
            self._compute(name, batch)
        with self._changed:
            self._running_since = None
            if self._closed or self._has_calls:
                self._changed.notify()

    def _take(self) -> tuple[Hashable, list[_Row]]:
        """Take the rows of the next batch, perhaps none."""
        name, queue = next((name, queue) for name, queue in self._queues.items() if queue.calls)
        self._queues[name] = self._queues.pop(name)  # the last one next time
        now, most_rows = self._clock(), queue.most_rows
        batch: list[_Row] = []
        while queue.calls and len(batch) < most_rows:
            call = queue.calls.pop()
            if call.future.done():  # its caller has left
                continue
            rows = call.rows[call.taken : call.taken + most_rows - len(batch)]
            call.started = call.started if call.taken else now
            call.taken += len(rows)
            batch += [(call, row) for row in rows]
            if call.taken < len(call.rows):
                queue.calls.return_to_front(call.caller, call)
        self._running_since = now
        return name, batch

    def _compute(self, name: Hashable, batch: list[_Row]) -> None:
        queue, began = self._queues[name], self._clock()
        try:
            results = queue.run([row for _, row in batch])
            if len(results) != len(batch):
                raise ValueError(f"{len(batch)} rows got {len(results)} results")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  it may raise anything; the row's caller gets it
            if len(batch) > 1:
                self._compute(name, batch[: len(batch) // 2])
                self._compute(name, batch[len(batch) // 2 :])
                return
            results = [error]
        now = self._clock()
        queue.last_s, queue.last_rows = now - began, len(batch)
        for call, _ in batch:
            call.own_s += (now - began) / len(batch)
        for (call, _), result in zip(batch, results, strict=True):
            call.results.append(result)
        _deliver(
            [
                (call, call.finished(now))
                for call in dict.fromkeys(call for call, _ in batch)
                if len(call.results) == len(call.rows)
            ]
        )
        try:
            self._on_batch(name, len(batch), now - began)
        except Exception:  # the rows were computed all the same
            log.exception("a batch was not counted")


def _deliver(finished: list[_Finished]) -> None:
    """Resolve futures on the threads of their loops, those of one loop at once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Finished]] = {}
    for call, results in finished:
        by_loop.setdefault(call.future.get_loop(), []).append((call, results))
    for loop, resolved in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there any more
            loop.call_soon_threadsafe(_resolve_futures, resolved)


def _resolve_futures(finished: list[_Finished]) -> None:
    for call, results in finished:
        if not call.future.done():
            call.future.set_result(results)
