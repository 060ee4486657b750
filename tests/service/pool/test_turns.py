from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from typing import Any

import pytest

from service.inference.job import Job, QueueFull
from service.pool.turns import Turns


def order(tasks: Iterable[tuple[str, int]], *, bulk: str = "") -> str:
    """The callers of tasks, which come at once while the only place is taken, as they run."""
    turns, ran = Turns(1, limit=10**9), list[str]()

    async def run(caller: str, cost: int) -> None:
        async with turns.take(Job(client=caller, bulk=caller == bulk), cost):
            ran.append(caller)
            await asyncio.sleep(0)

    async def run_all() -> None:
        async with turns.take(Job(), 1):
            waiting = [asyncio.ensure_future(run(*task)) for task in tasks]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(run_all())
    return "".join(ran)


def test_one_caller_is_served_in_order_and_several_in_turn() -> None:
    """Whoever sends many tasks waits for itself."""
    assert "aaaabb" != order([("a", 1)] * 4 + [("b", 1)] * 2)
    assert "ababaa" == order([("a", 1)] * 4 + [("b", 1)] * 2)


def test_turns_are_by_cost() -> None:
    """A caller of large tasks has as much as one of small ones, not as many."""
    assert "abbbba" == order([("a", 4)] * 2 + [("b", 1)] * 4)


def test_bulk_tasks_come_last() -> None:
    """Whenever they came."""
    assert "bbbaaa" == order([("a", 1)] * 3 + [("b", 1)] * 3, bulk="a")


def test_who_leaves_has_no_turn() -> None:
    """Neither one that waits nor one that has just been given its turn keeps the place."""

    async def scenario() -> None:
        turns = Turns(1, limit=10)

        async def hold(ending: asyncio.Event) -> None:
            async with turns.take(Job(), 1):
                await ending.wait()

        ending = asyncio.Event()
        first, second, third = (asyncio.ensure_future(hold(ending)) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        async with asyncio.timeout(10), turns.take(Job(), 1):
            pass

    asyncio.run(scenario())


def test_several_places() -> None:
    """So many tasks run at once."""

    async def scenario() -> int:
        turns, running, most = Turns(3, limit=10), 0, 0

        async def run() -> None:
            nonlocal running, most
            async with turns.take(Job(), 1):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        tasks: list[Coroutine[Any, Any, None]] = [run() for _ in range(10)]
        await asyncio.gather(*tasks)
        return most

    assert 3 == asyncio.run(scenario())


def test_nobody_fills_the_queue_alone() -> None:
    """A lone caller has half of it, two have a third each; what has ended does not count."""
    turns = Turns(1, limit=12)
    with ExitStack() as jobs:
        for _ in range(6):
            jobs.enter_context(turns.reserve(Job(client="a"), [1]))
        with pytest.raises(QueueFull), turns.reserve(Job(client="a"), [1]):
            pass
        for _ in range(3):
            jobs.enter_context(turns.reserve(Job(client="b"), [1]))
        with pytest.raises(QueueFull), turns.reserve(Job(client="b"), [1]):
            pass
        assert 9 == turns.waiting
    assert 0 == turns.waiting


def test_a_job_counts_by_its_largest_task() -> None:
    """Whoever sends it bounds how many of them run at once."""
    turns = Turns(1, limit=12)
    with turns.reserve(Job(), [2, 5, 1]):
        assert 5 == turns.waiting
