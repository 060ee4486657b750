from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from service.inference.job import MAX_RETRY_S, Admission, DeadlineExceeded, Job, QueueFull
from service.processes.server import KEEP_ALIVE_S
from tests.service.inference.gates import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> Admission:
    """Four rows may wait; nothing was measured."""
    return Admission(4, clock=clock)


@pytest.fixture
def measured(admission: Admission, clock: Clock) -> Admission:
    """Where two rows leave in a second."""
    with admitted(admission, Job(0.0, cost=4)) as job:
        clock.now = 2.0
        admission.record_completed(job, 4, 2.0)
    return admission


@contextmanager
def admitted(admission: Admission, job: Job) -> Iterator[Job]:
    """As a route does it."""
    admission.admit(job)
    try:
        yield job
    finally:
        admission.release(job)


def refusal(admission: Admission, job: Job) -> QueueFull:
    with pytest.raises(QueueFull) as refused, admitted(admission, job):
        pass
    return refused.value


@pytest.mark.parametrize("cost", [1, 2])
def test_jobs_are_admitted_up_to_the_limit(admission: Admission, cost: int) -> None:
    """Rows are counted, not jobs."""
    with admitted(admission, Job(0.0, cost=3)):
        if cost == 1:
            with admitted(admission, Job(0.0, cost=cost)):
                assert 4 == admission.waiting
        else:
            refusal(admission, Job(0.0, cost=cost))
            assert 3 == admission.waiting


@pytest.mark.parametrize("cost", [5, 10**9, 10**400])
def test_a_job_larger_than_the_limit_is_not_admitted(admission: Admission, cost: int) -> None:
    """Not into an empty queue either, where it would keep out everybody else."""
    with pytest.raises(ValueError, match="the limit of 4"):
        admission.admit(Job(0.0, cost=cost))
    with admitted(admission, Job(0.0, cost=4)):
        assert 4 == admission.waiting


@pytest.mark.parametrize("computed", [0, 1, 3])
def test_a_job_that_fails_gives_its_places_back(admission: Admission, computed: int) -> None:
    """However many of its rows were computed."""

    def fail() -> None:
        with admitted(admission, Job(0.0, cost=3)) as job:
            admission.record_completed(job, computed, 1.0)
            assert 3 - computed == admission.waiting
            raise ValueError("poison")

    with pytest.raises(ValueError, match="poison"):
        fail()
    assert 0 == admission.waiting


def test_a_job_may_compute_more_than_it_foresaw(admission: Admission) -> None:
    """Its surplus frees no places of others."""
    with admitted(admission, Job(0.0, cost=2)), admitted(admission, Job(0.0, cost=1)) as job:
        admission.record_completed(job, 3, 1.0)
        admission.record_completed(job, 1, 1.0)
        assert 2 == admission.waiting
    assert 0 == admission.waiting


def test_the_rate_is_measured_while_rows_wait(measured: Admission, clock: Clock) -> None:
    """Idle seconds do not count."""
    assert 2.0 == measured.rate
    clock.now += 100
    with admitted(measured, Job(0.0, cost=4)) as job:
        clock.now += 2
        measured.record_completed(job, 4, 2.0)
    assert pytest.approx(2.0) == measured.rate


@pytest.mark.parametrize(
    ("left_s", "fits"), [(1.4, False), (1.5, False), (1.6, True), (math.inf, True)]
)
def test_a_job_that_would_wait_past_its_deadline_is_refused(
    measured: Admission, clock: Clock, left_s: float, *, fits: bool
) -> None:
    """Three rows wait, which takes a second and a half."""
    job = Job(clock.now, deadline=clock.now + left_s)
    with admitted(measured, Job(0.0, cost=3)):
        if not fits:
            refusal(measured, job)
        else:
            with admitted(measured, job):
                assert 4 == measured.waiting


@pytest.mark.parametrize(("left_s", "fits"), [(-1, False), (0, False), (0.001, True)])
def test_an_empty_queue_admits_what_has_time_left(
    measured: Admission, clock: Clock, left_s: float, *, fits: bool
) -> None:
    """Nothing is computed for a deadline that has passed."""
    job = Job(0.0, deadline=clock.now + left_s)
    if fits:
        measured.admit(job)
    else:
        with pytest.raises(DeadlineExceeded):
            measured.admit(job)
    assert int(fits) == measured.waiting


@pytest.mark.parametrize(
    ("cost", "left_s", "fits"), [(1, 25, True), (1, 23, False), (9, 25, False)]
)
def test_a_small_job_waits_for_one_turn_of_each_large_one(
    clock: Clock, cost: int, left_s: float, *, fits: bool
) -> None:
    """Eight jobs of a hundred rows take turns of three: a row has 24 before it, not 800."""
    admission = Admission(1_000, turn_rows=3, clock=clock)
    admission.admit(first := Job(0.0, cost=1))
    admission.record_completed(first, 1, 1.0)
    for _ in range(8):
        admission.admit(Job(0.0, cost=100))
    job = Job(0.0, deadline=clock.now + left_s, cost=cost)
    if fits:
        admission.admit(job)
    else:
        refusal(admission, job)


def test_a_client_s_further_jobs_wait_behind_a_turn_of_its_others() -> None:
    """Those of another client come next: nobody waits for the client that sends the most."""
    admission = Admission(1000, turn_rows=4)
    jobs = [Job(cost=cost, client=client) for cost, client in ((64, "a"), (2, "a"), (1, "a"))]
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(admitted(admission, job))
        assert [0, 4, 6] == [job.position for job in jobs]
        admission.record_completed(jobs[0], 4, 1.0)
        admission.queue(jobs[0])
        other = stack.enter_context(admitted(admission, Job(cost=1, client="b")))
        assert 7 == jobs[0].position
        assert 4 == other.position
    with admitted(admission, Job(cost=1, client="a")) as again:
        assert 4 == again.position


def test_no_job_waits_for_others_without_end() -> None:
    """However many clients come meanwhile, each with one row."""
    admission = Admission(1000)
    with admitted(admission, Job(cost=8, client="a")), ExitStack() as stack:
        late = stack.enter_context(admitted(admission, Job(cost=1, client="a")))
        for number in range(100):
            with admitted(admission, Job(cost=1, client=number)) as job:
                admission.record_completed(job, 1, 1.0)
        last = stack.enter_context(admitted(admission, Job(cost=1, client="b")))
    assert late.position < last.position


@pytest.mark.parametrize(
    ("rows_per_s", "shortest_s", "longest_s"),
    [(2.0, 2.0, 3.0), (0.01, MAX_RETRY_S / 1.5, MAX_RETRY_S), (0.0, 1.0, 1.5)],
    ids=["measured", "capped", "unknown"],
)
def test_refused_callers_come_back_one_after_the_other(
    clock: Clock, rows_per_s: float, shortest_s: float, longest_s: float
) -> None:
    """When what waits is computed, and spread over half as long again."""
    admission = Admission(4, clock=clock)
    if rows_per_s:
        with admitted(admission, Job(0.0)) as job:
            admission.record_completed(job, 1, 1 / rows_per_s)
    with admitted(admission, Job(0.0, cost=4)):
        waits = {refusal(admission, Job(0.0)).retry_after_s for _ in range(100)}
    assert shortest_s <= min(waits) < max(waits) <= longest_s
    assert 50 < len(waits)


def test_connections_are_kept_for_those_who_come_back() -> None:
    """A client that waits for Retry-After does not meet a connection that is closing."""
    assert MAX_RETRY_S < KEEP_ALIVE_S
