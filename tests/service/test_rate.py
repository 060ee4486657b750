from __future__ import annotations

import pytest

from service.__main__ import KEEP_ALIVE_S
from service.rate import LONGEST_S, Rate, Refusals


class Clock:
    """Shows the seconds that it was set to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock) -> Refusals:
    """Where 50 rows go through in a second."""
    rate = Rate()
    rate.note(100, 2.0)
    return Refusals(rate, clock=clock)


def test_rate_is_that_of_the_last_batches() -> None:
    """Zero where nothing is known."""
    rate = Rate()
    assert 0 == rate.rows_per_s
    rate.note(100, 2.0)
    assert 50 == pytest.approx(rate.rows_per_s)


def test_a_second_where_the_rate_is_not_known() -> None:
    """Whoever asks, and however often."""
    refusals = Refusals(Rate())
    assert [1.0, 1.0] == [refusals.retry_after_s(50) for _ in range(2)]


def test_callers_come_back_one_behind_the_other(refusals: Refusals) -> None:
    """As fast as room is made for them."""
    waits = [refusals.retry_after_s(rows) for rows in (50, 100, 25)]
    assert [1.0, 3.0, 3.5] == pytest.approx(waits)


def test_time_makes_room(refusals: Refusals, clock: Clock) -> None:
    """What was promised before now is past."""
    refusals.retry_after_s(100)
    clock.now += 1.5
    assert 1.5 == pytest.approx(refusals.retry_after_s(50))
    clock.now += 60
    assert 1.0 == pytest.approx(refusals.retry_after_s(50))


def test_nobody_is_sent_away_for_ever(refusals: Refusals) -> None:
    """Those who were sent away may not come back, and then there is room sooner."""
    assert 30 == max(refusals.retry_after_s(100) for _ in range(100))


def test_connections_are_kept_for_those_who_are_told_to_come_back() -> None:
    """A client that waits as long as it is told does not meet a connection that is closing."""
    assert LONGEST_S < KEEP_ALIVE_S
