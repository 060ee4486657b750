"""Rows from many callers, answered in batches by one thread.

Knows nothing of HTTP, of arrays or of networks: a row is anything, and a runner turns a list of
rows into a list of answers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Clock = Callable[[], float]


class Full(Exception):
    """The queue has no room for these rows; `retry_after_s` says when it should have."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


class Closed(Exception):
    """The batcher takes no more rows, or died before it could answer these."""


class RunnerLost(Exception):
    """Raised by a runner that will never work again: the batcher ends and answers every caller."""


@dataclass(frozen=True)
class Runner:
    """What computes the rows of one queue."""

    run: Callable[[list[Any]], Sequence[Any]]
    """Called on the batcher's thread; gives one answer for each row, in order."""
    max_rows: int
    """Largest batch."""


@dataclass(eq=False)
class Submission:
    """The rows of one caller, and the answers so far."""

    rows: Sequence[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answers]
    arrived: float
    taken: int = 0
    """Rows that went into batches."""
    answered: int = 0
    waited_s: float = 0.0
    computed_s: float = 0.0
    abandoned: bool = False
    """Its caller left: its remaining rows are not computed."""
    answers: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.rows)

    def outcome(self) -> Answers:
        """What its caller gets once all rows are answered."""
        return Answers(self.answers, self.waited_s, self.computed_s)


class BatchReport(NamedTuple):
    """What one run of a runner was like."""

    key: Any
    """Of the runner."""
    rows: int
    seconds: float


class Answers(NamedTuple):
    """What a caller of `submit` gets."""

    rows: list[Any]
    """For each row its answer, or the exception that the runner raised for it alone."""
    waited_s: float
    """From its arrival until its first row was in a batch."""
    computed_s: float
    """Of the batches that held its rows, together."""


class Part(NamedTuple):
    """The rows of a submission that are in one batch."""

    submission: Submission
    start: int
    stop: int

    @property
    def rows(self) -> Sequence[Any]:
        """The rows themselves."""
        return self.submission.rows[self.start : self.stop]


Outcome = tuple[Submission, Answers | Closed]
"""A submission, and its answers or why there are none."""


class Batch(NamedTuple):
    """What a runner is given at once."""

    key: Any
    runner: Runner
    parts: list[Part]


class Waiting:
    """All rows that wait, in one queue for each runner. Not safe for threads by itself.

    The next batch comes from the queue whose first rows have waited longest, and takes all that
    wait there, in order, up to the runner's limit. A submission that does not fit is split.

    Args:
        max_delay_s: how long first rows may be held back for others to join them; not at all by
            default.
    """

    def __init__(self, runners: Mapping[Hashable, Runner], *, max_delay_s: float = 0) -> None:
        self._runners = dict(runners)
        self._queues: dict[Hashable, deque[Submission]] = {key: deque() for key in runners}
        self._max_delay_s = max_delay_s
        self.rows = 0

    def __repr__(self) -> str:
        depths = {key: len(queue) for key, queue in self._queues.items() if queue}
        return f"Waiting(rows={self.rows}, submissions={depths})"

    def add(self, key: Hashable, submission: Submission) -> None:
        """Put a submission at the end of a queue."""
        self._queues[key].append(submission)
        self.rows += len(submission.rows)

    def form(self, now: float) -> Batch | float | None:
        """The next batch, or the seconds until there is one, or None if nothing waits."""
        self._drop_abandoned()
        filled = [key for key, queue in self._queues.items() if queue]
        if not filled:
            return None
        key = min(filled, key=lambda one: self._queues[one][0].arrived)
        runner, queue = self._runners[key], self._queues[key]
        wait_s = queue[0].arrived + self._max_delay_s - now
        if wait_s > 0 and sum(len(one.rows) - one.taken for one in queue) < runner.max_rows:
            return wait_s
        return Batch(key, runner, self._take(queue, runner.max_rows, now))

    def clear(self) -> list[Submission]:
        """Take everything out."""
        left = [submission for queue in self._queues.values() for submission in queue]
        for queue in self._queues.values():
            queue.clear()
        self.rows = 0
        return left

    def _take(self, queue: deque[Submission], room: int, now: float) -> list[Part]:
        parts = []
        while queue and room:
            submission = queue[0]
            start = submission.taken
            if start == 0:
                submission.waited_s = now - submission.arrived
            stop = min(len(submission.rows), start + room)
            parts.append(Part(submission, start, stop))
            submission.taken = stop
            room -= stop - start
            self.rows -= stop - start
            if stop == len(submission.rows):
                queue.popleft()
        return parts

    def _drop_abandoned(self) -> None:
        for queue in self._queues.values():
            for submission in [one for one in queue if one.abandoned]:
                queue.remove(submission)
                self.rows -= len(submission.rows) - submission.taken


class Batcher:
    """Greedy, slot first: when the thread is free it takes everything that waits.

    Nobody is held back on an idle service, and nothing polls. Rows are counted, not submissions. A
    batch that fails is retried by halves, so that a bad row fails alone.

    Args:
        runners: one for each queue; all run on this batcher's own thread.
        max_waiting_rows: rows that may wait before `submit` raises Full.
        max_delay_s: see `Waiting`.
        clock: monotonic seconds.
        on_batch: called, on the batcher's thread, after every run.
        on_lost: called, on the batcher's thread, if a runner is lost.
    """

    def __init__(
        self,
        runners: Mapping[Hashable, Runner],
        *,
        max_waiting_rows: int = 1024,
        max_delay_s: float = 0,
        clock: Clock = time.monotonic,
        on_batch: Callable[[BatchReport], None] = lambda _report: None,
        on_lost: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self._waiting = Waiting(runners, max_delay_s=max_delay_s)
        self._max_waiting_rows = max_waiting_rows
        self._clock = clock
        self._on_batch = on_batch
        self._on_lost = on_lost
        self._rate = Rate()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="inference", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"Batcher({state}, {self._waiting!r}, {self._rate.rows_per_s:.0f} rows/s)"

    @property
    def waiting_rows(self) -> int:
        """Rows that wait for a place in a batch."""
        return self._waiting.rows

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    async def submit(self, key: Hashable, rows: Sequence[Any]) -> Answers:
        """Wait for the answers of some rows, in order.

        If the caller is cancelled (it left, or its time is over), rows that are not yet in a batch
        are never computed.

        Args:
            key: of the runner.
            rows: at least one.

        Raises:
            Full: there is no room for the rows.
            Closed: `close` was called, or a runner was lost.
        """
        loop = asyncio.get_running_loop()
        submission = Submission(rows, loop, loop.create_future(), self._clock())
        with self._changed:
            if self._closed:
                raise Closed("the service takes no more work")
            if self._waiting.rows + len(rows) > self._max_waiting_rows:
                raise Full(self._rate.seconds_for(self._waiting.rows + len(rows)))
            self._waiting.add(key, submission)
            self._changed.notify()
        try:
            return await submission.future
        finally:
            submission.abandoned = True

    def close(self) -> None:
        """Take no more rows, finish those that were accepted, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._run(batch)
            except Exception as error:  # noqa: BLE001  whatever ends this thread must be told
                self._die(error, batch)
                return

    def _next_batch(self) -> Batch | None:
        """Wait for a batch; None at the end."""
        with self._changed:
            while True:
                formed = self._waiting.form(self._clock())
                if isinstance(formed, Batch):
                    return formed
                if formed is None and self._closed:
                    return None
                self._changed.wait(formed)

    def _run(self, batch: Batch) -> None:
        key, runner, parts = batch
        rows = [row for part in parts for row in part.rows]
        started = self._clock()
        try:
            answers = _counted(runner.run(rows), len(rows))
        except RunnerLost:
            raise
        except Exception as error:  # noqa: BLE001  a runner may raise anything; the row's caller gets it
            if len(rows) > 1:
                for half in _halve(parts, len(rows) // 2):
                    self._run(Batch(key, runner, half))
                return
            answers = [error]
        seconds = self._clock() - started
        self._rate.note(len(rows), seconds)
        _deliver(_complete(parts, answers, seconds))
        self._on_batch(BatchReport(key, len(rows), seconds))

    def _die(self, error: Exception, batch: Batch) -> None:
        with self._changed:
            self._closed = True
            left = self._waiting.clear()
        lost = Closed(f"inference is lost: {error}")
        submissions = dict.fromkeys([part.submission for part in batch.parts] + left)
        self._on_lost(error)
        _deliver([(submission, lost) for submission in submissions])


class Rate:
    """Rows a second, smoothed over the last batches."""

    def __init__(self, *, memory: float = 0.9) -> None:
        self._memory = memory
        self._rows = 0.0
        self._seconds = 0.0

    @property
    def rows_per_s(self) -> float:
        """Zero before anything was measured."""
        return self._rows / self._seconds if self._seconds else 0.0

    def note(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._rows = self._memory * self._rows + rows
        self._seconds = self._memory * self._seconds + seconds

    def seconds_for(self, rows: int) -> float:
        """How long these rows take; one second where that is not known."""
        return rows / self.rows_per_s if self.rows_per_s else 1.0


def _complete(parts: Iterable[Part], answers: Sequence[Any], seconds: float) -> list[Outcome]:
    """Put answers in their places; gives the submissions that have them all."""
    complete: list[Outcome] = []
    position = 0
    for submission, start, stop in parts:
        submission.answers[start:stop] = answers[position : position + stop - start]
        position += stop - start
        submission.answered += stop - start
        submission.computed_s += seconds
        if submission.answered == len(submission.rows):
            complete.append((submission, submission.outcome()))
    return complete


def _counted(answers: Sequence[Any], rows: int) -> Sequence[Any]:
    if len(answers) != rows:
        raise ValueError(f"{rows} rows got {len(answers)} answers")
    return answers


def _halve(parts: list[Part], middle: int) -> tuple[list[Part], list[Part]]:
    """Cut a batch after `middle` rows."""
    first, second = [], []
    for submission, start, stop in parts:
        cut = min(max(start, start + middle), stop)
        if start < cut:
            first.append(Part(submission, start, cut))
        if cut < stop:
            second.append(Part(submission, cut, stop))
        middle -= stop - start
    return first, second


def _deliver(outcomes: Iterable[Outcome]) -> None:
    """Settle futures on their loops' own threads, those of one loop at once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for submission, outcome in outcomes:
        by_loop.setdefault(submission.loop, []).append((submission, outcome))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there any more
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: list[Outcome]) -> None:
    for submission, outcome in settled:
        if submission.future.done():
            continue
        if isinstance(outcome, Exception):
            submission.future.set_exception(outcome)
        else:
            submission.future.set_result(outcome)
