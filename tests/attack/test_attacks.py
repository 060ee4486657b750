"""The cheap attacks of `make attack`, each for a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.attack import ALL
from tests.attack.cases import Case
from tests.attack.runner import Limits, run
from tests.attack.service import Door, Service, started

SECONDS = 1
FEW = {"CAPSNET_MODELS": '["mnist", "multimnist-attention"]'}
"""Bundles that the attacks need."""
BESIDE_OTHER_TESTS = Limits(p99_ms=8_000, memory=False)
"""Whose processes take the time and share the memory."""


@pytest.fixture(scope="module")
def service() -> Iterator[Callable[[Door], Service]]:
    """Gives the service as a door wants it; the same for all its attacks, while it lives."""
    running: dict[Door, Service] = {}
    with ExitStack() as stack:

        def give(door: Door) -> Service:
            if door not in running or not running[door].alive:
                running[door] = stack.enter_context(started(door, **FEW))
            return running[door]

        yield give


@pytest.mark.parametrize("case", [one for one in ALL if one.short], ids=lambda one: one.name)
def test_others_are_served_beside_an_attack(case: Case, service: Callable[[Door], Service]) -> None:
    """They get right answers, the attacker honest ones, and the log no traceback."""
    (result,) = run([case], service(case.door), seconds=SECONDS, limits=BESIDE_OTHER_TESTS)
    assert [] == result.faults
