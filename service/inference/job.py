"""A request as the engine sees it, and admission control."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_RETRY_S = 30.0
_UNKNOWN_S = 1.0
"""`Retry-After` before any rate is measured."""
_JITTER = 1.5
"""`Retry-After` is multiplied by at most this factor, so that clients do not return at once."""
_MEMORY = 0.98
"""The weight of earlier results in the measured rate, at each new result."""


class QueueFull(Exception):
    """Too many rows are waiting. `retry_after_s` is when to try again."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the queue is full; try again in {math.ceil(retry_after_s)} s")
        self.retry_after_s = retry_after_s


class DeadlineExceeded(Exception):
    """A job's deadline would have passed before its next batch was computed."""


class Closed(Exception):
    """The engine takes no more rows, or was lost before it answered these."""


@dataclass(eq=False)
class Job:
    """A request in the queue. Rows are computed by the positions of their jobs."""

    position: float = 0.0
    """Rows of jobs with a lower position are computed first: see `Admission.queue`."""
    deadline: float = math.inf
    """When the client stops waiting, in the same seconds."""
    cost: int = 1
    """The rows that the job needs in all, as far as known when it is admitted."""
    size: int = 1
    """The price of one of its images: how many times as many pixels as the network's it has."""
    waiting: int = 0
    """The rows that were admitted and are not computed yet."""
    client: Hashable = None
    """The key or the address that the job comes from."""
    computed_s: float = 0.0
    """This job's share of the seconds of its batches so far."""


class Admission:
    """Decides which jobs may wait, by the rows before them and the rate at which rows are computed.

    For one event loop alone.

    Args:
        limit: most rows of jobs that wait or are computed; no job may cost more.
        turn_rows: a job computes so many rows, then others have their turn.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: int,
        *,
        turn_rows: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._turn_rows, self._clock = turn_rows, clock
        self._jobs: set[Job] = set()
        self.waiting = 0
        """Rows of admitted jobs without a result."""
        self._rows = self._seconds = 0.0
        self._position = 0.0
        """That of a job which comes now, from a client that has no other."""
        self._behind: dict[Hashable, float] = {}
        """The position behind all turns of a client that has jobs."""

    def __repr__(self) -> str:
        return f"Admission({self.waiting} of {self.limit} rows, {self.rate:.0f} rows/s)"

    @property
    def rate(self) -> float:
        """The rows a second while any were computed; zero before anything is measured."""
        return self._rows / self._seconds if self._seconds else 0.0

    def admit(self, job: Job) -> None:
        """Count a job's rows as waiting until they are computed, or `release` is called.

        Raises:
            DeadlineExceeded: the job's deadline has passed.
            QueueFull: they do not fit, or would wait past the job's deadline.
            ValueError: they would never fit. The caller has to bound its jobs.
        """
        self._check(job)
        job.waiting = job.cost
        self.waiting += job.cost
        self._jobs.add(job)
        self.queue(job)

    def queue(self, job: Job) -> None:
        """Give the next turn of a job its position: behind the other turns of its client.

        Clients take turns (weighted fair queueing): one that sends many jobs waits for itself, and
        the jobs of others are computed in between.
        """
        job.position = max(self._position, self._behind.get(job.client, 0.0))
        self._behind[job.client] = job.position + min(job.waiting, self._turn_rows)

    def release(self, job: Job) -> None:
        """Take back the rows of a job that are not computed."""
        self._jobs.discard(job)
        self.waiting -= job.waiting
        job.waiting = 0
        if all(other.client != job.client for other in self._jobs):
            self._behind.pop(job.client, None)

    def _check(self, job: Job) -> None:
        """Refuse a job beyond the limit, or one whose turn would come after its deadline."""
        if job.cost > self.limit:
            raise ValueError(f"no job may cost {job.cost}, more than the limit of {self.limit}")
        left_s = job.deadline - self._clock()
        if left_s <= 0:
            raise DeadlineExceeded("the deadline had passed before the request was admitted")
        wait_s = self._rows_before(job) / self.rate if self.rate else 0.0
        if wait_s >= left_s or self.waiting + job.cost > self.limit:
            wait_s = min(wait_s or _UNKNOWN_S, MAX_RETRY_S / _JITTER)
            raise QueueFull(wait_s * random.uniform(1, _JITTER))  # noqa: S311

    def _rows_before(self, job: Job) -> int:
        """The rows of others that are computed before a job's last one.

        Other jobs have as many turns until then as this one.
        """
        if job.cost + self.waiting <= self._turn_rows or math.isinf(self._turn_rows):
            return self.waiting
        most = math.ceil(job.cost / self._turn_rows) * int(self._turn_rows)
        return sum(min(other.waiting, most) for other in self._jobs)

    def record_completed(self, job: Job, rows: int, seconds: float) -> None:
        """Count rows of a job as computed.

        Args:
            job: whose.
            rows: how many.
            seconds: that computing took, without those of waiting.
        """
        self._rows = _MEMORY * self._rows + rows
        self._seconds = _MEMORY * self._seconds + seconds
        self._position += rows / max(1, len(self._behind))
        self.record_found(job, rows)

    def record_found(self, job: Job, rows: int) -> None:
        """Count rows of a job as done, where nothing had to be computed."""
        done = min(rows, job.waiting)
        self.waiting -= done
        job.waiting -= done
