from __future__ import annotations

import pytest

from service.processes.generation import Generation
from tests.service.processes.conftest import Open, until

pytestmark = pytest.mark.anyio


async def test_workers_with_the_same_bundles_join(open_place: Open) -> None:
    """The first of them decides which."""
    generation = Generation([open_place("serve"), open_place("serve")])
    await until(lambda: generation.is_loaded)
    assert not generation.is_mixed
    generation.admit()
    await until(lambda: len(generation.ready) == 2)


async def test_a_worker_with_other_bundles_does_not_join(open_place: Open) -> None:
    """All that answer answer alike."""
    first, other = open_place("serve"), open_place("serve", bundles="b")
    generation = Generation([first, other])
    await until(lambda: generation.is_loaded)
    assert generation.is_mixed
    generation.admit()
    await until(lambda: generation.ready == [first] and other.child is None)
    assert 1 == generation.outdated


async def test_other_bundles_are_taken_where_nobody_answers(open_place: Open) -> None:
    """Nobody answers otherwise then."""
    first, other = open_place("serve"), open_place("serve", bundles="b")
    generation = Generation([first, other])
    await until(lambda: generation.is_loaded)
    generation.admit()
    await until(lambda: first.is_ready and other.child is None)
    first.reject()
    await until(lambda: first.child is None)
    generation.admit()
    await until(lambda: generation.is_loaded)
    assert 0 == generation.outdated


async def test_it_is_hopeless_once_all_are(open_place: Open) -> None:
    """And says why."""
    generation = Generation([open_place("fail"), open_place("serve")])
    await until(lambda: generation.reason and generation.workers[1].loaded)
    assert not generation.is_hopeless
    alone = Generation([generation.workers[0]])
    assert (True, "no bundle") == (alone.is_hopeless, alone.reason)


async def test_all_end_together(open_place: Open) -> None:
    """The engine last."""
    generation = Generation([open_place("serve")], open_place("serve"))
    await until(lambda: all(place.loaded for place in generation.places))
    await generation.end()
    assert [True, True] == [place.ended_well for place in generation.places]
