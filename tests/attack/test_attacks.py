"""The cheap attacks of `make attack`, each for a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

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
COSTLY = ("every-number", "long-row", "many-scans", "many-segments", "nothing", "photographs")
"""Attacks that would keep the service from answering others in time."""


def groups() -> list[list[Case]]:
    """Attacks that are run at once, next to one client: those of a module and of a door."""
    short = [one for one in ALL if one.short]
    alone = [[one] for one in short if one.name in COSTLY]
    cheap = sorted((one for one in short if one.name not in COSTLY), key=place)
    return alone + [list(group) for _, group in groupby(cheap, place)]


def place(case: Case) -> tuple[str, str]:
    """The module and the door of an attack."""
    return case.attack.__module__, case.door


def name(cases: Sequence[Case]) -> str:
    """That of an attack alone, or of the module of several."""
    return cases[0].name if len(cases) == 1 else place(cases[0])[0].rpartition(".")[2]


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


@pytest.mark.parametrize("cases", groups(), ids=name)
def test_others_are_served_beside_an_attack(
    cases: list[Case], service: Callable[[Door], Service]
) -> None:
    """They get right answers, the attackers honest ones, and the log no traceback."""
    door = service(cases[0].door)
    results = run(cases, door, seconds=SECONDS, limits=BESIDE_OTHER_TESTS)
    assert {} == {result.name: result.faults for result in results if result.faults}
