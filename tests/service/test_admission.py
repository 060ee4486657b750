"""Who may compute now, who waits, and who comes back later."""

from __future__ import annotations

import math

import pytest

from service.admission import MAX_CALLERS, MAX_RETRY_S, Admission, Claim
from service.errors import Busy, RateLimited, TooLate
from service.processes.server import KEEP_ALIVE_S
from tests.service.inference.gates import Clock

BURST = 4


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> Admission:
    """Four rows may wait; each caller has two rows a second, four at once."""
    return Admission(1_000, 4, rows_per_s=2, burst_rows=BURST, clock=clock)


def claimed(admission: Admission, cost: int, *, deadline: float = math.inf) -> Claim:
    """A request that was admitted."""
    claim = admission.claim("10.0.0.1")
    claim.deadline = deadline
    claim.admit(cost)
    return claim


@pytest.mark.parametrize("computed", [0, 1, 3, 5])
def test_rows_wait_until_they_are_computed_or_given_back(
    admission: Admission, computed: int
) -> None:
    """Up to the limit; surplus rows free no places of others."""
    with claimed(admission, 3) as claim:
        with pytest.raises(Busy):
            claimed(admission, 2)
        other = claimed(admission, 1)
        claim.record_computed(computed, 1.0)
        assert 4 - min(3, computed) == admission.waiting_rows
    assert 1 == admission.waiting_rows
    other.release()
    claimed(admission, 10**9).release()
    assert 0 == admission.waiting_rows


@pytest.mark.parametrize(
    ("left_s", "error"), [(-1, TooLate), (0, TooLate), (1.5, Busy), (1.6, None), (math.inf, None)]
)
def test_a_request_that_would_be_late_is_refused_at_once(
    admission: Admission, clock: Clock, left_s: float, error: type[Exception] | None
) -> None:
    """Three rows wait, which takes a second and a half."""
    claimed(admission, 1).record_computed(4, 2.0)
    claimed(admission, 3)
    if error is None:
        claimed(admission, 1, deadline=clock.now + left_s)
    else:
        with pytest.raises(error):
            claimed(admission, 1, deadline=clock.now + left_s)
    assert (4 if error is None else 3) == admission.waiting_rows


@pytest.mark.parametrize(
    ("rows_per_s", "shortest_s", "longest_s"),
    [(0.4, 10, 15), (0.01, MAX_RETRY_S / 1.5, MAX_RETRY_S), (0.0, 1, 2)],
    ids=["measured", "capped", "unknown"],
)
def test_refused_callers_come_back_one_after_the_other(
    admission: Admission, rows_per_s: float, shortest_s: float, longest_s: float
) -> None:
    """When what waits is computed, and spread over half as long again.

    A client that waits for Retry-After does not meet a connection that is closing.
    """
    if rows_per_s:
        claimed(admission, 1).record_computed(1, 1 / rows_per_s)
    claimed(admission, 4)
    waits = set[int]()
    for _ in range(100):
        with pytest.raises(Busy) as refused:
            claimed(admission, 1)
        waits.add(int(refused.value.headers["Retry-After"]))
    assert shortest_s <= min(waits) <= max(waits) <= longest_s < KEEP_ALIVE_S
    assert len(waits) > 3 or not rows_per_s


def test_a_burst_passes_and_then_so_many_rows_a_second(admission: Admission, clock: Clock) -> None:
    """The refusal says when the next row may come, and it may come then. Others are not asked."""
    for _ in range(BURST):
        admission.spend("a", 1)
    with pytest.raises(RateLimited, match=r"try again in 0\.5 s") as refused:
        admission.spend("a", 1)
    assert "1" == refused.value.headers["Retry-After"]
    admission.spend("b", 1)
    clock.now += 0.5
    admission.spend("a", 1)
    admission.spend("a", 10, paid=1)  # the rest of the same request
    with pytest.raises(RateLimited, match=r"try again in 5 s"):
        admission.spend("a", 1)


def test_callers_that_were_silent_longest_are_forgotten(admission: Admission) -> None:
    """Memory is bounded, whatever the number of addresses."""
    admission.spend("first", 100)
    for number in range(MAX_CALLERS):
        admission.spend(number, 100)
    admission.spend("first", 1)
    with pytest.raises(RateLimited):
        admission.spend(MAX_CALLERS - 1, 1)
