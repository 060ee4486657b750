"""Rows from many callers, answered in batches by threads, or at once where nobody else calls.

Knows nothing of HTTP, of arrays or of networks: a row is anything, and a runner turns a list of
rows into a list of answers.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from service.delivery import complete, counted, deliver
from service.rate import LONGEST_S, Rate, Refusals
from service.waiting import Answers, Batch, BatchReport, Part, Runner, Submission, Visit, Waiting
from service.workers import Workers

Clock = Callable[[], float]
QUICK_S = 0.01
"""A run that takes less may hold up an event loop that has nothing else to do."""
SHARE_IN_LINE = 0.6
"""Of its time, what a caller may spend behind those that wait before it. The rest is for batches
that run, for its own, and for what differs from the estimate."""


class Full(Exception):
    """The queue is too long for these rows; `retry_after_s` says when it should not be."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too much work is waiting; try again in {math.ceil(retry_after_s)} s")
        self.retry_after_s = retry_after_s


class Closed(Exception):
    """The batcher takes no more rows, or died before it could answer these."""


class RunnerLost(Exception):
    """Raised by a runner that will never work again: the batcher ends and answers every caller."""


class Batcher:
    """Greedy, slot first: when a thread is free it takes everything that waits.

    Nobody is held back on an idle service, and nothing polls. Rows are counted, not submissions.
    Where several threads are idle, each takes its share. A batch that fails is retried by halves,
    so that a bad row fails alone. A caller that is alone runs its rows itself where that is quick
    and the runner allows it: waking a thread and being woken by it takes longer than a small
    network.

    Args:
        runners: one for each queue.
        max_waiting_rows: while so many rows wait, more are refused.
        max_delay_s: see `Waiting`.
        clock: monotonic seconds.
        prepare: called once, on the first of the threads, before any run, and says how many of
            them are to run batches side by side; the constructor waits.
        on_batch: called, on the thread that ran it, after every run.
        on_lost: called, on the thread that ran it, if a runner is lost.

    Raises:
        Exception: what `prepare` raised.
    """

    def __init__(
        self,
        runners: Mapping[Hashable, Runner],
        *,
        max_waiting_rows: int = 1024,
        max_delay_s: float = 0,
        clock: Clock = time.monotonic,
        prepare: Callable[[], int] = lambda: 1,
        on_batch: Callable[[BatchReport], None] = lambda _report: None,
        on_lost: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self._waiting = Waiting(runners, max_delay_s=max_delay_s)
        self._max_waiting_rows = max_waiting_rows
        self._clock = clock
        self._on_batch = on_batch
        self._on_lost = on_lost
        self._rate = Rate()
        self._refusals = Refusals(self._rate, clock=clock)
        self._seconds: dict[tuple[Hashable, int], float] = {}
        """Of the last run of a runner with so many rows."""
        self._running = 0
        """Threads that run a batch."""
        self._closed = False
        self._changed = threading.Condition()
        self._threads = 1

        def start() -> int:
            self._threads = prepare()
            return self._threads

        self._workers = Workers(self._work, prepare=start)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"Batcher({state}, {self._waiting!r}, {self._rate.rows_per_s:.0f} rows/s)"

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for a place in a batch."""
        return self._waiting.rows

    @property
    def alive(self) -> bool:
        """Whether all threads are there."""
        return self._workers.alive

    def check_room(self, rows: int, *, ahead: int = 0, until: float = math.inf) -> None:
        """Refuse rows for which there is no room, perhaps before work is put into them.

        Many get in where one would, else single rows would take each place that comes free.

        Args:
            rows: that may come; they say only when to come back.
            ahead: rows that are on their way here.
            until: when answers are of no use any more.

        Raises:
            Full: too many rows wait, in all or for these to be answered in time.
        """
        if self._waiting.rows + ahead >= self._max_waiting_rows:
            raise Full(self._refusals.retry_after_s(rows))
        line_s = self._waiting.seconds / self._threads
        longest_s = SHARE_IN_LINE * max(0.0, until - self._clock())
        if line_s > longest_s:
            raise Full(min(line_s - longest_s, LONGEST_S))

    async def submit(
        self, key: Hashable, rows: Sequence[Any], visit: Visit | None = None
    ) -> Answers:
        """Wait for the answers of some rows, in order.

        If the caller is cancelled (it left, or its time is over), rows that are not yet in a batch
        are never computed.

        Args:
            key: of the runner.
            rows: at least one.
            visit: of the caller, if this is not all that it submits, or if its time is limited.

        Raises:
            Full: there is no room for the first rows of a visit, see `check_room`.
            Closed: `close` was called, or a runner was lost.
        """
        loop = asyncio.get_running_loop()
        now = self._clock()
        visit = visit or Visit()
        with self._changed:
            if self._closed:
                raise Closed("the service takes no more work")
            if not visit.admitted:
                self.check_room(len(rows), until=visit.until)
                visit.admitted = True
            if visit.since is None:
                visit.since = now
            future = loop.create_future()
            submission = Submission(rows, loop, future, now, visit.since, visit.until)
            self._waiting.add(key, submission)
            may_run = self._may_run(key, submission)
            if not may_run and self._waiting.ready(key, running=self._running):
                self._changed.notify()
        try:
            if may_run:
                await asyncio.sleep(0)  # for those who came at the same time
                self._run_alone(key, submission)
            return await submission.future
        finally:
            if submission.answered < len(rows):
                with self._changed:
                    self._waiting.drop(key, submission)

    def close(self, timeout_s: float | None = None) -> bool:
        """Take no more rows, finish those that were accepted, and wait for the threads to end.

        Returns:
            Whether they ended within the timeout; without one, this waits for as long as it takes.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return self._workers.join(timeout_s)

    def _may_run(self, key: Hashable, submission: Submission) -> bool:
        """Whether a caller may run its rows itself: it is alone, and they do not take long."""
        rows = len(submission.rows)
        return (
            self._waiting.rows == rows
            and not submission.taken
            and not self._running
            and self._waiting.runner(key).anywhere()
            and self._seconds.get((key, rows), QUICK_S) < QUICK_S
        )

    def _run_alone(self, key: Hashable, submission: Submission) -> None:
        """Run a submission on this thread if its caller is still alone, else wake the other."""
        with self._changed:
            batch = None
            if not self._closed and self._may_run(key, submission):
                batch = self._waiting.form(self._clock())
            if not isinstance(batch, Batch):
                self._changed.notify()
                return
        self._survive(batch)

    def _work(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                survived = self._survive(batch)
                with self._changed:
                    self._running -= 1
                if not survived:
                    break
        except Exception as error:  # noqa: BLE001  whatever ends a thread must be told
            self._die(error)

    def _next_batch(self) -> Batch | None:
        """Wait for a batch; None at the end."""
        with self._changed:
            while True:
                running = self._running
                idle = self._threads - running
                formed = self._waiting.form(self._clock(), running=running, idle=idle)
                if isinstance(formed, Batch):
                    self._running += 1
                    self._changed.notify()  # there may be enough for another
                    return formed
                if formed is None and self._closed:
                    return None
                self._changed.wait(formed)

    def _survive(self, batch: Batch) -> bool:
        """Run a batch, and say whether there may be others."""
        try:
            self._run(batch)
        except Exception as error:  # noqa: BLE001  whatever ends the batcher must be told
            self._die(error, batch.parts)
            return False
        return True

    def _run(self, batch: Batch) -> None:
        key, runner, parts = batch
        rows = [row for part in parts for row in part.rows]
        started = self._clock()
        try:
            answers = counted(runner.run(rows), len(rows))
        except RunnerLost:
            raise
        except Exception as error:  # noqa: BLE001  a runner may raise anything; the row's caller gets it
            if len(rows) > 1:
                for half in batch.halves():
                    self._run(half)
                return
            answers = [error]
        now = self._clock()
        seconds = now - started
        with self._changed:
            self._seconds[key, len(rows)] = seconds
            self._waiting.note(key, len(rows), seconds)
            self._rate.note(len(rows), seconds / self._threads)
            answered = complete(parts, answers, now)
        deliver(answered)
        self._on_batch(BatchReport(key, len(rows), seconds, runner.padding(len(rows))))

    def _die(self, error: Exception, parts: Sequence[Part] = ()) -> None:
        with self._changed:
            self._closed = True
            left = self._waiting.clear()
            self._changed.notify_all()
        lost = Closed(f"inference is lost: {error}")
        submissions = dict.fromkeys([part.submission for part in parts] + left)
        deliver((submission, lost) for submission in submissions)
        self._on_lost(error)
