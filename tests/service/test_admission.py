"""Who may compute now, who waits, and who comes back later."""

from __future__ import annotations

import math

import pytest

from service.admission import MAX_CALLERS, Admission, Claim
from service.errors import Busy, RateLimited, TooLate
from tests.service.inference.gates import Clock

BURST = 4


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> Admission:
    """Four rows may wait; each caller has two rows a second, four at once."""
    return Admission(1_000, 4, cost_per_s=2, burst_cost=BURST, clock=clock)


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
    claim = claimed(admission, 3)
    with pytest.raises(Busy):
        claimed(admission, 2)
    other = claimed(admission, 1)
    claim.record_computed(computed, 1.0)
    assert 4 - min(3, computed) == admission.waiting_cost
    claim.release_rows()
    assert 1 == admission.waiting_cost
    other.release_rows()
    claimed(admission, 10**9).release_rows()
    assert 0 == admission.waiting_cost


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
    assert (4 if error is None else 3) == admission.waiting_cost


def test_callers_that_were_silent_longest_are_forgotten(admission: Admission) -> None:
    """Memory is bounded, whatever the number of addresses."""
    admission.claim("first").charge(100)
    for number in range(MAX_CALLERS):
        admission.claim(str(number)).charge(100)
    admission.claim("first").charge()
    with pytest.raises(RateLimited):
        admission.claim(str(MAX_CALLERS - 1)).charge()
