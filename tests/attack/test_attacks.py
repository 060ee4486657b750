"""The cheap attacks of `make attack`, each for a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby

import pytest

from tests.attack.__main__ import ALL
from tests.attack.runner import Case, judge, run
from tests.attack.service import Door, Service, started
from tests.fire.generator import Seen
from tests.processes import nginx

FEW = {"CAPSNET_MODELS": '["mnist"]', "CAPSNET_WORKERS": "1"}
"""The bundle that the attacks need, and one worker, which bears them all."""
SHORT = [one for one in ALL if one.short]
AT_ONCE = [list(found) for _, found in groupby(SHORT, lambda one: one.door)]
GROUPS = [
    *([case for case in group if not case.alone] for group in AT_ONCE),
    *([case] for case in SHORT if case.alone),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Door], Service]]:
    """Gives the service as a door wants it: one without keys and one with, while they live."""
    running: dict[Door, Service] = {}
    with ExitStack() as stack:

        def give(door: Door) -> Service:
            own: Door = "open" if door == "open" else "grpc"
            if own not in running or not running[own].alive:
                running[own] = stack.enter_context(started(own, **FEW))
            service = running[own]
            if door == "nginx":
                proxy = nginx(tmp_path_factory.mktemp("nginx"), upstream=service.target.port)
                port = stack.enter_context(proxy).base_url.port or 0
                return replace(service, target=replace(service.target, port=port))
            return service

        yield give


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: f"{cases[0].name} {len(cases)}")
def test_others_are_served_beside_an_attack(
    cases: list[Case], service: Callable[[Door], Service]
) -> None:
    """They get right answers, the attackers honest ones, and the log no traceback.

    Other tests take the time and share the memory: the client may wait longer than it is promised.
    """
    results = run(cases, service(cases[0].door), seconds=1, max_p99_ms=8_000, memory=False)
    assert {} == {result.case.name: result.faults for result in results if result.faults}


async def nothing(_: object) -> None:
    """No attack."""


def test_what_is_wrong_is_told() -> None:
    """A 5xx that is not honest, a status that is not allowed, a client that was not served."""
    assert ["answered 500"] == Case("", nothing).judge(Counter({200: 5, 503: 1, 500: 1}))
    assert ["answered 200"] == Case("", nothing, {401}).judge(Counter({401: 3, 200: 1}))
    assert ["never 200"] == Case("", nothing, required={200}).judge(Counter({400: 1}))
    seen = Seen(right=80, p99_ms=1_500, refused=10, missed=Counter({"504": 1}))
    told = ["1 of 81 others: 504", "p99 of others 1,500 ms", "10 of 81 others refused once"]
    assert told == judge(seen, 1_000)
