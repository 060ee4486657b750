from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from capsnet.deadline import DEFAULT_PAUSE_S, Deadline, parse_retry_after
from capsnet.errors import DeadlineExceeded, Problem


def test_the_time_that_is_left_runs_out() -> None:
    """Nothing is sent after the deadline."""
    times = iter([100.0, 103.0, 105.0])
    deadline = Deadline(5, clock=lambda: next(times))
    assert 2 == deadline.left_s()
    with pytest.raises(DeadlineExceeded, match="no answer within 5 s"):
        deadline.left_s()


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_a_deadline_is_a_positive_number(timeout_s: float) -> None:
    """Another is refused before anything is sent."""
    with pytest.raises(ValueError, match="positive"):
        Deadline(timeout_s)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Problem(429, retry_after_s=3), 3),
        (Problem(503, retry_after_s=3), 3),
        (Problem(503), DEFAULT_PAUSE_S),
        (Problem(429, retry_after_s=5), False),
        (Problem(504, retry_after_s=1), False),
        (Problem(500, retry_after_s=1), False),
        (ConnectionError(), False),
    ],
)
def test_only_a_busy_service_is_asked_again(error: Exception, expected: float) -> None:
    """After what it asks for, if that is before the deadline."""
    assert expected == Deadline(5, clock=lambda: 0).pause_s(error)


def test_a_pause_of_nothing_is_a_short_one() -> None:
    """`Retry-After: 0` does not become a storm of requests."""
    assert 0.05 == Deadline(5).pause_s(Problem(429, retry_after_s=0))


def test_retry_after_is_seconds_or_a_date() -> None:
    """Both forms of RFC 9110; a broken one counts as none."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (parse_retry_after(soon) or 0) <= 100
    assert 0 == parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    assert (7, None, None) == tuple(map(parse_retry_after, ("7", "soon", None)))
    assert (None, None) == tuple(map(parse_retry_after, ("\u00b2", "\u0667")))
