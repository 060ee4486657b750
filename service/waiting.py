"""Rows that wait, and the batches that are formed of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Runner:
    """What computes the rows of one queue."""

    run: Callable[[list[Any]], Sequence[Any]]
    """Gives one answer for each row, in order."""
    max_rows: int
    """Largest batch."""
    padding: Callable[[int], int] = lambda _rows: 0
    """How many rows more than those of a batch are computed for it."""
    anywhere: bool = False
    """Whether other threads may call it too, even at the same time."""


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


class Batch(NamedTuple):
    """What a runner is given at once."""

    key: Any
    runner: Runner
    parts: list[Part]

    def halves(self) -> tuple[Batch, Batch]:
        """The same rows as two batches, of the first half of them and of the second."""
        middle = sum(part.stop - part.start for part in self.parts) // 2
        first, second = [], []
        for submission, start, stop in self.parts:
            cut = min(max(start, start + middle), stop)
            if start < cut:
                first.append(Part(submission, start, cut))
            if cut < stop:
                second.append(Part(submission, cut, stop))
            middle -= stop - start
        return self._replace(parts=first), self._replace(parts=second)


class BatchReport(NamedTuple):
    """What one run of a runner was like."""

    key: Any
    """Of the runner."""
    rows: int
    seconds: float
    padding: int = 0
    """Rows computed beyond those."""


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

    def runner(self, key: Hashable) -> Runner:
        """Of a queue."""
        return self._runners[key]

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
