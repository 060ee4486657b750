from __future__ import annotations

import asyncio
import threading

import pytest

from service.errors import Unavailable
from tests.service.inference.gates import (
    PATIENCE_S,
    Clock,
    Gate,
    batching,
    rows_of,
    start,
    until_free,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """What the service runs on."""
    return "asyncio"


async def test_each_caller_gets_its_own_rows_in_order() -> None:
    """Whatever else is in the batch."""
    async with batching(Gate(is_open=True)) as batcher:
        calls = [start(batcher, i, i + 100) for i in range(20)]
        assert [[2 * i, 2 * i + 200] for i in range(20)] == await rows_of(*calls)


async def test_callers_take_turns() -> None:
    """Who sends the most waits for itself, and others are computed in between."""
    gate = Gate()
    async with batching(gate, max_rows=2) as batcher:
        calls = [start(batcher, 0)]
        await gate.running()
        calls += [start(batcher, row, caller="many") for row in (1, 2, 3)]
        calls += [start(batcher, 4, 5, 6, caller="large"), start(batcher, 7, caller="one")]
        gate.let(5)
        await rows_of(*calls)
    assert [[0], [1, 4], [7, 2], [5, 6], [3]] == gate.batches


async def test_rows_that_come_together_are_computed_together() -> None:
    """All that one round of the event loop brings, though the thread is free for the first."""
    gate = Gate(is_open=True)
    async with batching(gate) as batcher:
        await rows_of(*(start(batcher, row) for row in range(4)))
    assert [[0, 1, 2, 3]] == gate.batches


async def test_a_lone_quick_row_is_computed_on_the_event_loop() -> None:
    """The first row, several rows and slow ones are left to the thread."""
    clock, here = Clock(), threading.get_ident()

    def take(rows: list[int]) -> list[int]:
        clock.now += 0.03 if 0 in rows else 0.01
        return rows

    gate = Gate(take, is_open=True)
    async with batching(gate, clock=clock, quick_s=0.02) as batcher:
        for rows, on_the_loop in (((1,), False), ((0,), True), ((1,), False), ((1, 2), False)):
            gate.threads.clear()
            await rows_of(start(batcher, *rows))
            await until_free(batcher)
            assert on_the_loop is (here in gate.threads)


async def test_rows_of_a_caller_that_left_are_not_computed() -> None:
    """What is not yet in a batch is dropped, and its neighbours are answered."""
    gate = Gate()
    async with batching(gate) as batcher:
        start(batcher, 1)
        await gate.running()
        leaver, stayer = start(batcher, 2), start(batcher, 3)
        leaver.cancel()
        gate.let(2)
        assert [[6]] == await rows_of(stayer)
    assert [[1], [3]] == gate.batches


@pytest.mark.parametrize("position", range(4))
async def test_a_bad_row_fails_alone(position: int) -> None:
    """A failed batch is retried by halves until the row at fault stands alone."""
    gate, rows = Gate(), [1, 2, 3, 4]
    async with batching(gate) as batcher:
        start(batcher, 0)
        await gate.running()
        calls = [start(batcher, "poison" if row == position + 1 else row) for row in rows]
        gate.let(100)
        results = await rows_of(*calls)
    (error,) = results.pop(position)
    assert "poison" == str(error)
    assert [[2 * row] for row in rows if row != position + 1] == results


async def test_a_batch_has_as_many_rows_as_may_take_its_time() -> None:
    """By the seconds of the last one: who comes next need not wait for a whole large request."""
    gate, clock = Gate(), Clock()
    async with batching(gate, clock=clock, batch_s=0.06) as batcher:
        call = start(batcher, 1, 2, 3, 4)
        await gate.running()
        clock.now = 0.08
        gate.let(3)
        await call
        assert [[10, 12, 14, 16]] == await rows_of(start(batcher, 5, 6, 7, 8))
    assert [[1, 2, 3, 4], [5, 6, 7], [8]] == gate.batches


# The end


async def test_closing_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    """Every caller from before gets its results."""
    gate = Gate()
    async with batching(gate) as batcher:
        calls = [start(batcher, row) for row in range(12)]
        await gate.running()
        gate.let(100)
        assert await asyncio.to_thread(batcher.close, PATIENCE_S)
        with pytest.raises(Unavailable):
            start(batcher, 0)
        assert [[2 * row] for row in range(12)] == await rows_of(*calls)
