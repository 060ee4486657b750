"""Rows that wait, and the batches that are formed of them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from service.rate import Rate


@dataclass(frozen=True)
class Runner:
    """What computes the rows of one queue."""

    run: Callable[[list[Any]], Sequence[Any]]
    """Gives one answer for each row, in order."""
    max_rows: int
    """Largest batch."""
    padding: Callable[[int], int] = lambda _rows: 0
    """How many rows more than those of a batch are computed for it."""
    anywhere: Callable[[], bool] = lambda: False
    """Whether a caller's thread may call it too."""
    efficient_rows: int = 1
    """Batches of fewer rows do not run beside others, and none is divided into smaller ones."""


@dataclass(eq=False)
class Visit:
    """One caller, who may submit rows several times, one after the other."""

    until: float = math.inf
    """When answers are of no use to it any more: then it has to cancel what it waits for."""
    admitted: bool = False
    """There was room for its first rows, and so there is for later ones."""
    since: float | None = None
    """When its first rows came. Queues take turns by this, so that later ones are no newcomers."""


@dataclass(eq=False)
class Submission:
    """The rows of one caller, and the answers so far."""

    rows: Sequence[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answers]
    arrived: float
    since: float
    """When its caller's first rows arrived."""
    until: float = math.inf
    """When its answers are of no use any more."""
    taken: int = 0
    """Rows that went into batches."""
    answered: int = 0
    waited_s: float = 0.0
    answers: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.rows)

    def outcome(self, now: float) -> Answers:
        """What its caller gets once all rows are answered, which is now."""
        return Answers(self.answers, self.waited_s, now - self.arrived - self.waited_s)


class Answers(NamedTuple):
    """What a caller of `submit` gets."""

    rows: list[Any]
    """For each row its answer, or the exception that the runner raised for it alone."""
    waited_s: float
    """From its arrival until its first row was in a batch."""
    computed_s: float
    """From then until its last row was answered."""


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


@dataclass(eq=False)
class _Queue:
    """What waits for one runner."""

    runner: Runner
    submissions: deque[Submission] = field(default_factory=deque)
    rows: int = 0
    """Of them, those that no batch has taken."""
    seconds: float = 0.0
    """Of the last batch."""
    rate: Rate = field(default_factory=Rate)
    """Of the last batches, on one thread."""

    @property
    def line_s(self) -> float:
        """How long the rows take that the next batch has no place for."""
        return self.rate.seconds(max(0, self.rows - self.runner.max_rows))

    def add(self, submission: Submission) -> None:
        """Put a submission at the end."""
        self.submissions.append(submission)
        self.rows += len(submission.rows)

    def ready(self, running: int) -> bool:
        """Whether there are enough rows to begin a batch beside so many that run."""
        return self.rows >= (self.runner.efficient_rows if running else 1)

    def take(self, room: int, now: float) -> list[Part]:
        """Take up to `room` rows from the front."""
        parts = []
        while self.submissions and room:
            submission = self.submissions[0]
            start = submission.taken
            if start == 0:
                submission.waited_s = now - submission.arrived
            stop = min(len(submission.rows), start + room)
            parts.append(Part(submission, start, stop))
            submission.taken = stop
            room -= stop - start
            self.rows -= stop - start
            if stop == len(submission.rows):
                self.submissions.popleft()
        return parts

    def drop(self, submission: Submission) -> None:
        """Take out what is left of a submission, if anything is."""
        if submission in self.submissions:
            self.submissions.remove(submission)
            self.rows -= len(submission.rows) - submission.taken

    def drop_late(self, now: float) -> None:
        """Take out what would not be answered in time, if the next batch takes as long as the last.

        Only where more waits than a batch holds: fewer rows may take less. A batch that took long
        by chance must not keep all others out: each time it counts half.
        """
        if self.rows <= self.runner.max_rows:
            return
        late = [one for one in self.submissions if not one.taken and one.until < now + self.seconds]
        for submission in late:
            self.drop(submission)
        if late:
            self.seconds /= 2


class Waiting:
    """All rows that wait, in one queue for each runner. Not safe for threads by itself.

    The next batch comes from the queue at whose head is the caller that came first, and takes all
    that wait there, in order, up to the runner's limit, or its share of them where several threads
    are idle. Where more wait than a batch holds, rows that would be answered too late are left to
    expire, so that a queue that has grown too long still answers those whose time is enough. Beside
    batches that run, another begins only where some queue has enough rows to be efficient; then too
    the caller that came first is the next, so that none starves. A submission that does not fit is
    split.

    Args:
        max_delay_s: how long first rows may be held back for others to join them; not at all by
            default.
    """

    def __init__(self, runners: Mapping[Hashable, Runner], *, max_delay_s: float = 0) -> None:
        self._queues = {key: _Queue(runner) for key, runner in runners.items()}
        self._filled: dict[Hashable, _Queue] = {}
        """Those that submissions wait in, or did until the last batch was formed."""
        self._max_delay_s = max_delay_s

    def __repr__(self) -> str:
        depths = {key: len(one.submissions) for key, one in tuple(self._filled.items()) if one.rows}
        return f"Waiting(rows={self.rows}, submissions={depths})"

    @property
    def rows(self) -> int:
        """In all queues; may be read while another thread changes them."""
        return sum([queue.rows for queue in tuple(self._filled.values())])

    def runner(self, key: Hashable) -> Runner:
        """Of a queue."""
        return self._queues[key].runner

    def drop(self, key: Hashable, submission: Submission) -> None:
        """Take out what is left of a submission, if anything is."""
        self._queues[key].drop(submission)

    @property
    def seconds(self) -> float:
        """How long one thread would take for all rows but a batch of each queue."""
        return sum([queue.line_s for queue in tuple(self._filled.values())])

    def note(self, key: Hashable, rows: int, seconds: float) -> None:
        """Say how long a batch of a queue took."""
        queue = self._queues[key]
        queue.seconds = seconds
        queue.rate.note(rows, seconds)

    def add(self, key: Hashable, submission: Submission) -> None:
        """Put a submission at the end of a queue."""
        queue = self._filled[key] = self._queues[key]
        queue.add(submission)

    def ready(self, key: Hashable, *, running: int = 0) -> bool:
        """Whether enough rows wait in a queue to begin a batch beside so many that run."""
        return self._queues[key].ready(running)

    def form(self, now: float, *, running: int = 0, idle: int = 1) -> Batch | float | None:
        """The next batch, or the seconds until there is one, or None if none can begin.

        Args:
            now: as the submissions tell the time.
            running: batches that have begun and not ended.
            idle: threads that could begin one, the caller's among them.
        """
        for key, queue in list(self._filled.items()):
            queue.drop_late(now)
            if not queue.submissions:
                del self._filled[key]
        waits_s = {key: self._wait_s(queue, now) for key, queue in self._filled.items()}
        due = [(key, queue) for key, queue in self._filled.items() if waits_s[key] <= 0]
        if not any(queue.ready(running) for _, queue in due):
            return min((wait_s for wait_s in waits_s.values() if wait_s > 0), default=None)
        key, queue = min(due, key=lambda item: item[1].submissions[0].since)
        runner = queue.runner
        batches = max(1, min(idle, queue.rows // runner.efficient_rows))
        share = math.ceil(queue.rows / batches)
        return Batch(key, runner, queue.take(min(share, runner.max_rows), now))

    def _wait_s(self, queue: _Queue, now: float) -> float:
        """How long others may still join a queue's first rows; zero or less where it is full."""
        if queue.rows >= queue.runner.max_rows:
            return 0
        return queue.submissions[0].arrived + self._max_delay_s - now

    def clear(self) -> list[Submission]:
        """Take everything out."""
        left = [submission for queue in self._filled.values() for submission in queue.submissions]
        self._queues = {key: _Queue(queue.runner) for key, queue in self._queues.items()}
        self._filled = {}
        return left
