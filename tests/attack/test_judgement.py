"""What `make attack` calls wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attack.cases import CASES, Case
from tests.attack.client import Report
from tests.attack.runner import Limits, Result, judge
from tests.attack.service import Service
from tests.attack.wire import CLOSED, Outcome, Target

FAIR = Report(answered=100, p99_ms=100)


def case(*, allowed: set[Outcome] | None = None, required: set[Outcome] | None = None) -> Case:
    """One of all cases, with other answers allowed."""
    accepted = None if allowed is None else frozenset(allowed)
    return replace(CASES[0], allowed=accepted, required=frozenset(required or ()))


@pytest.mark.parametrize(
    ("one", "outcomes", "faults"),
    [
        (case(), {200: 5, 429: 1, 503: 1, 504: 2, CLOSED: 1}, []),
        (case(), {200: 5, 500: 1}, ["answered 500"]),
        (case(allowed={401}), {401: 3}, []),
        (case(allowed={401}), {401: 3, 200: 1}, ["answered 200"]),
        (case(required={200}), {400: 1}, ["never 200"]),
    ],
)
def test_answers_are_judged(one: Case, outcomes: dict[Outcome, int], faults: list[str]) -> None:
    """A 5xx that is not honest, one that the case does not allow, and one that is missing."""
    assert faults == one.judge(Counter(outcomes))


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (replace(FAIR, p99_ms=1_500), "p99 of others 1,500 ms"),
        (replace(FAIR, failures={"504": 1}), "1 of 101 others: 504"),
        (replace(FAIR, refused=20), "20 of 100 others refused once"),
        (Report(p99_ms=float("nan")), "p99 of others nan ms"),
    ],
)
def test_what_others_notice_is_judged(own: Service, seen: Report, fault: str) -> None:
    """Slow, wrong and refused answers, and none at all."""
    assert [fault] == judge(found(seen), own, 0, Limits(), fatal=False)


def test_memory_that_stays_is_judged(own: Service) -> None:
    """A fifth more than before is still as before."""
    assert [] == judge(found(FAIR, after_mib=119), own, 0, Limits(), fatal=False)
    kept = judge(found(FAIR, after_mib=121), own, 0, Limits(), fatal=False)
    assert ["memory 100 to 121 MiB"] == kept


def test_tracebacks_are_judged(own: Service) -> None:
    """By their last lines, from where the attack began."""
    trace = 'Traceback (most recent call last):\n  File "x.py"\n    go()\nValueError: no\n'
    own.log.write_text(trace)
    assert ["1 x ValueError: no"] == judge(found(FAIR), own, 0, Limits(), fatal=False)
    assert [] == judge(found(FAIR), own, len(trace), Limits(), fatal=False)


def found(seen: Report, *, after_mib: float = 100) -> Result:
    """What came of an attack on a service of 100 MiB."""
    return Result("", "", "open", Counter(), seen, 100, 100, after_mib, 1)


@pytest.fixture
def own(tmp_path: Path) -> Service:
    """This process, as a service with an empty log."""
    (tmp_path / "log").touch()
    return Service(_pid(), Target(0), tmp_path, tmp_path, tmp_path / "log")


def _pid() -> int:
    return int(Path("/proc/self").readlink().name)
