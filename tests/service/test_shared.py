from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import pytest

from service.errors import Busy
from service.shared import Turns

Work = Callable[[Hashable, str], Coroutine[Any, Any, None]]


def play(scenario: Callable[[Turns, Work], Coroutine[Any, Any, None]], limit: int) -> list[str]:
    """Play a scenario; what has had its turn, in order."""
    done: list[str] = []

    async def run() -> None:
        turns = Turns(1, limit=limit)

        async def work(owner: Hashable, name: str) -> None:
            async with turns.turn(owner):
                for _ in range(20):  # as long on any host: passes of the loop, not time
                    await asyncio.sleep(0)
                done.append(name)

        await scenario(turns, work)
        await work("last", "end")  # the place is free again
        assert 0 == turns.waiting

    asyncio.run(run())
    return done


def test_one_that_leaves_gives_its_turn_away() -> None:
    """While it waits, while it has the turn, and between the two."""

    async def scenario(_turns: Turns, work: Work) -> None:
        first, second, third = (
            asyncio.create_task(work(name, name)) for name in ("first", "second", "third")
        )
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)

    assert ["third", "end"] == play(scenario, 9)


def test_at_the_limit_the_owner_with_most_is_refused() -> None:
    """Its last one makes room for another owner's; an owner does not push out its own."""

    async def scenario(turns: Turns, work: Work) -> None:
        tasks = [asyncio.create_task(work("many", f"{n}")) for n in range(4)]
        await asyncio.sleep(0)
        assert 3 == turns.waiting
        with pytest.raises(Busy):
            await work("many", "too many")
        leaver = asyncio.create_task(work("another", "left"))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.wait([leaver])
        await work("one", "of another")
        left = await asyncio.gather(*tasks, return_exceptions=True)
        assert [False, False, False, True] == [isinstance(one, Busy) for one in left]

    assert ["0", "1", "of another", "2", "end"] == play(scenario, 3)
