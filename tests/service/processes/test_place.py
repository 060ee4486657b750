from __future__ import annotations

import pytest

from tests.service.processes.conftest import Open, until

pytestmark = pytest.mark.anyio


async def test_a_process_that_ends_is_followed_by_another(open_place: Open) -> None:
    """And the reason is kept until that one has loaded."""
    place = open_place("die", "serve")
    await until(lambda: place.reason)
    assert "ended with code 3" in str(place.reason)
    await until(lambda: place.loaded)
    assert (2, None) == (place.starts, place.reason)


async def test_a_process_that_cannot_be_started_is_tried_again(open_place: Open) -> None:
    """As one that has failed."""
    place = open_place(OSError("no descriptor"), "serve")
    await until(lambda: place.loaded)
    assert 2 == place.starts


async def test_a_process_answers_once_it_was_told_to_join(open_place: Open) -> None:
    """Having loaded is not enough."""
    place = open_place("serve")
    await until(lambda: place.child and place.child.is_up)
    assert not place.is_ready
    place.join()
    await until(lambda: place.is_ready)


async def test_a_process_that_says_why_it_cannot_load_leaves_no_hope(open_place: Open) -> None:
    """One that merely ends does, until the fifth."""
    refused, crashed = open_place("fail"), open_place("die")
    await until(lambda: refused.reason and crashed.reason)
    assert (True, False) == (refused.is_hopeless, crashed.is_hopeless)
    assert "no bundle" == refused.reason


async def test_a_rejected_process_is_followed_by_none_until_it_is_asked_for(
    open_place: Open,
) -> None:
    """The bundles on disk would be the same."""
    place = open_place("serve")
    await until(lambda: place.loaded)
    place.reject()
    await until(lambda: place.child is None)
    assert (1, True) == (place.starts, place.is_outdated)
    place.try_again()
    await until(lambda: place.loaded)
    assert 2 == place.starts


@pytest.mark.parametrize("word", ["serve", "die"])
async def test_a_stopped_place_ends_well(open_place: Open, word: str) -> None:
    """Whether its process serves or waits to be started again."""
    place = open_place(word)
    await until(lambda: place.loaded if word == "serve" else place.reason)
    place.stop()
    await until(place.run.done)
    assert place.ended_well
