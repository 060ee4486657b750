"""Replicas of one worker each, behind a load balancer, event by event.

Admission is the service's own, with a simulated clock; batches are formed as its batcher does.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from service.inference.job import Admission, Job, QueueFull


@dataclass(eq=False)
class SimulatedJob(Job):
    """A request, and when it arrived."""

    arrived: float = 0.0


@dataclass(frozen=True)
class Network:
    """How long a batch takes on one worker."""

    start_s: float
    """Of any batch."""
    row_s: float
    """Of each row."""
    max_rows: int = 32

    def seconds(self, rows: int) -> float:
        """Of a batch."""
        return self.start_s + rows * self.row_s

    @property
    def rate(self) -> float:
        """Most rows a second."""
        return self.max_rows / self.seconds(self.max_rows)


class Clock:
    """Simulated seconds."""

    now = 0.0

    def __call__(self) -> float:
        """What the clock says."""
        return self.now


@dataclass
class Replica:
    """One worker: its admission, its queue and the batch that it computes."""

    network: Network
    clock: Clock
    limit: int
    """Most rows admitted."""
    speed: float = 1.0
    open: int = 0
    """Requests under way, as a load balancer counts connections."""
    admission: Admission = field(init=False)
    queue: deque[SimulatedJob] = field(default_factory=deque)
    batch: list[SimulatedJob] = field(default_factory=list)
    _last: tuple[float, int] = (0.0, 1)
    """Seconds and rows of the last batch."""

    def __post_init__(self) -> None:
        self.admission = Admission(self.limit, clock=self.clock)

    def admit(self, job: SimulatedJob) -> None:
        """Queue a job, or raise `QueueFull`."""
        self.admission.admit(job)
        self.queue.append(job)
        self.open += 1

    def give_up(self, job: SimulatedJob) -> bool:
        """Answer 504 if there is no answer yet; whether that was so."""
        if waited := job.waiting > 0:
            self.admission.release(job)
            self.open -= 1
        return waited

    def take(self) -> tuple[float, int]:
        """Form the next batch; its seconds, and how many jobs were dropped as too late for it."""
        late = 0
        upcoming = sum(job.waiting > 0 for job in islice(self.queue, self.network.max_rows))
        ends = self.clock.now + self._expected_s(upcoming)
        while self.queue and len(self.batch) < self.network.max_rows:
            job = self.queue.popleft()
            if not job.waiting:  # it was given up
                continue
            if job.deadline < ends:
                late += self.give_up(job)
            else:
                self.batch.append(job)
        if late:
            self._last = self._last[0] / 2, self._last[1]
        return (self.network.seconds(len(self.batch)) / self.speed if self.batch else 0.0), late

    def finish(self, seconds: float) -> list[SimulatedJob]:
        """Count the batch, which took so long, as computed; the jobs that are answered."""
        done, self.batch = [job for job in self.batch if job.waiting], []
        self._last = seconds, max(1, len(done))
        for job in done:
            self.admission.record_completed(job, 1)
        self.open -= len(done)
        return done

    def _expected_s(self, rows: int) -> float:
        seconds, last_rows = self._last
        return seconds * min(1.0, rows / last_rows)


Balancer = Callable[[Sequence[Replica]], Replica]


def choose_randomly(replicas: Sequence[Replica]) -> Replica:
    """Any replica, as kube-proxy does."""
    return random.choice(replicas)  # noqa: S311


def round_robin() -> Balancer:
    """Each in turn."""
    turns = count()
    return lambda replicas: replicas[next(turns) % len(replicas)]


def choose_least(replicas: Sequence[Replica]) -> Replica:
    """One of those with the fewest requests under way."""
    fewest = min(replica.open for replica in replicas)
    return random.choice([one for one in replicas if one.open == fewest])  # noqa: S311


BALANCERS: dict[str, Callable[[], Balancer]] = {
    "random": lambda: choose_randomly,
    "round-robin": round_robin,
    "least connections": lambda: choose_least,
}


class Figures(NamedTuple):
    """What callers see."""

    rejected: float
    """Share with 429."""
    late: float
    """Share with 504."""
    p50_s: float
    """Of those answered."""
    p99_s: float


def simulate(
    replicas: Sequence[Replica],
    balancer: Balancer,
    *,
    load: float,
    deadline_s: float,
    seconds: float,
    seed: int = 1,
) -> Figures:
    """Poisson arrivals at a share of the rate that all replicas have; the first tenth not counted.

    Args:
        replicas: with one clock.
        balancer: chooses one for each request.
        load: arrivals a second / sum of the replicas' rates.
        deadline_s: of each request.
        seconds: simulated.
        seed: of arrivals and choices.
    """
    random.seed(seed)
    rate = load * sum(one.network.rate * one.speed for one in replicas)
    gaps = np.random.default_rng(seed).exponential(1 / rate, int(seconds * rate))
    return _Run(replicas).run(np.cumsum(gaps).tolist(), balancer, deadline_s, seconds / 10)


class _Run:
    """One simulation: batches end and deadlines pass in order, between arrivals."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas
        self._clock = replicas[0].clock
        self._ends: list[tuple[float, int, Replica, float]] = []
        self._deadlines: deque[tuple[float, Replica, SimulatedJob]] = deque()
        self._order = count()
        self._latencies: list[tuple[float, float]] = []
        """When each job arrived that was answered, and how long it took."""
        self._late = 0

    def run(
        self, arrivals: list[float], balancer: Balancer, deadline_s: float, warm_up_s: float
    ) -> Figures:
        """Send each request when its time has come."""
        rejected = counted = 0
        for arrived in arrivals:
            self._advance(arrived)
            if not counted and arrived >= warm_up_s:
                self._late = 0
            counted += arrived >= warm_up_s
            try:
                self._send(
                    balancer(self._replicas),
                    SimulatedJob(deadline=arrived + deadline_s, arrived=arrived),
                )
            except QueueFull:
                rejected += arrived >= warm_up_s
        self._advance(math.inf)
        found = [took for arrived, took in self._latencies if arrived >= warm_up_s]
        p50_s, p99_s = np.percentile(found, (50, 99))
        return Figures(rejected / counted, self._late / counted, float(p50_s), float(p99_s))

    def _send(self, replica: Replica, job: SimulatedJob) -> None:
        self._clock.now = job.arrived
        replica.admit(job)
        self._deadlines.append((job.deadline, replica, job))
        if not replica.batch:
            self._begin(replica)

    def _begin(self, replica: Replica) -> None:
        seconds, late = replica.take()
        self._late += late
        if replica.batch:
            end = self._clock.now + seconds
            heapq.heappush(self._ends, (end, next(self._order), replica, seconds))

    def _advance(self, until: float) -> None:
        """Let everything happen that is due before."""
        while True:
            end = self._ends[0][0] if self._ends else math.inf
            deadline = self._deadlines[0][0] if self._deadlines else math.inf
            if min(end, deadline) > until or end == deadline == math.inf:
                return
            if end <= deadline:
                self._end_batch()
            else:
                self._clock.now, replica, job = self._deadlines.popleft()
                self._late += replica.give_up(job)

    def _end_batch(self) -> None:
        self._clock.now, _, replica, seconds = heapq.heappop(self._ends)
        for job in replica.finish(seconds):
            self._latencies.append((job.arrived, self._clock.now - job.arrived))
        if replica.queue:
            self._begin(replica)
