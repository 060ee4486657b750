from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.batcher import Batcher, Closed, Full, RunnerLost
from service.waiting import Answers, BatchReport, Runner, Visit


class Gate:
    """A runner that doubles numbers, one batch at a time, when it is let.

    It fails on "poison", and is lost on "lost".
    """

    def __init__(self, *, open: bool = True) -> None:  # noqa: A002
        self.batches: list[list[Any]] = []
        self.entered = threading.Semaphore(0)
        self._may_go = threading.Semaphore(0)
        self._open = open

    def __call__(self, rows: list[Any]) -> Sequence[Any]:
        """Answer a batch."""
        self.batches.append(rows)
        self.entered.release()
        if not self._open:
            assert self._may_go.acquire(timeout=10)
        if "lost" in rows:
            raise RunnerLost("the device fell off")
        if "poison" in rows:
            raise ValueError("poison")
        return [2 * row for row in rows]

    def let(self, batches: int = 1) -> None:
        """Let some batches finish."""
        self._may_go.release(batches)

    async def running(self) -> None:
        """Wait until the next batch is inside."""
        assert await asyncio.to_thread(self.entered.acquire, timeout=10)


class Clock:
    """A clock that stands until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time, in seconds."""
        return self.now


@asynccontextmanager
async def batching(gate: Gate, *, max_rows: int = 4, **settings: Any) -> AsyncIterator[Batcher]:
    batcher = Batcher({"q": Runner(gate, max_rows)}, **settings)
    try:
        yield batcher
    finally:
        gate.let(100)
        await asyncio.to_thread(batcher.close)


@asynccontextmanager
async def running_anywhere(*, seconds: float = 0.0) -> AsyncIterator[tuple[Batcher, list[Any]]]:
    """A batcher whose runner allows any thread, and the threads and rows of its runs."""
    clock, runs = Clock(), []

    def run(rows: list[Any]) -> list[Any]:
        runs.append((threading.get_ident(), rows))
        clock.now += seconds
        if "lost" in rows:
            raise RunnerLost("the device fell off")
        if "poison" in rows:
            raise ValueError("poison")
        return rows

    batcher = Batcher({"q": Runner(run, 4, anywhere=lambda: True)}, clock=clock)
    try:
        yield batcher, runs
    finally:
        await asyncio.to_thread(batcher.close)


async def submit(batcher: Batcher, *rows: Any) -> list[Any]:
    return (await batcher.submit("q", rows)).rows


async def submit_soon(batcher: Batcher, *rows: Any) -> asyncio.Task[list[Any]]:
    """Start a submission and let it reach the queue."""
    task = asyncio.create_task(submit(batcher, *rows))
    await asyncio.sleep(0)
    return task


def test_rows_are_answered_in_order() -> None:
    """A caller gets its own answers, whatever else is in the batch."""

    async def scenario() -> list[list[int]]:
        async with batching(Gate()) as batcher:
            return await asyncio.gather(*(submit(batcher, i, i + 100) for i in range(20)))

    assert [[2 * i, 2 * i + 200] for i in range(20)] == asyncio.run(scenario())


def test_what_waits_goes_together_when_the_slot_frees() -> None:
    """The first row starts at once; those that come meanwhile form the next batch."""

    async def scenario() -> list[list[int]]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            tasks = [await submit_soon(batcher, 1)]
            await gate.running()
            tasks += [await submit_soon(batcher, row) for row in (2, 3, 4)]
            gate.let(2)
            await asyncio.gather(*tasks)
            return gate.batches

    assert [[1], [2, 3, 4]] == asyncio.run(scenario())


def test_large_submissions_are_split_and_batches_are_filled() -> None:
    """Rows are counted, not submissions."""

    async def scenario() -> tuple[list[list[int]], list[list[int]]]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            tasks = [await submit_soon(batcher, 0)]
            await gate.running()
            tasks += [await submit_soon(batcher, *range(1, 7)), await submit_soon(batcher, 7)]
            gate.let(3)
            return await asyncio.gather(*tasks), gate.batches

    answers, batches = asyncio.run(scenario())
    assert [[0], [1, 2, 3, 4], [5, 6, 7]] == batches
    assert [[0], [2, 4, 6, 8, 10, 12], [14]] == answers


def test_rows_of_a_caller_that_left_are_not_computed() -> None:
    """Cancelling drops what is not yet in a batch, and its neighbours are answered."""

    async def scenario() -> tuple[list[list[int]], list[int]]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            await submit_soon(batcher, 1)
            await gate.running()
            leaver, stayer = await submit_soon(batcher, 2), await submit_soon(batcher, 3)
            leaver.cancel()
            await asyncio.sleep(0)
            gate.let(2)
            return gate.batches, await stayer

    assert ([[1], [3]], [6]) == asyncio.run(scenario())


def test_caller_that_leaves_during_its_batch_harms_nobody() -> None:
    """The others of the running batch get their answers."""

    async def scenario() -> list[int]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            first = await submit_soon(batcher, 1)
            await gate.running()
            leaver, stayer = await submit_soon(batcher, 2), await submit_soon(batcher, 3)
            gate.let()
            await first
            await gate.running()
            leaver.cancel()
            gate.let()
            return await stayer

    assert [6] == asyncio.run(scenario())


@pytest.mark.parametrize("position", range(4))
def test_a_bad_row_fails_alone(position: int) -> None:
    """A failed batch is retried by halves until the row at fault stands alone."""

    async def scenario() -> list[list[Any]]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            first = await submit_soon(batcher, 0)
            await gate.running()
            rows: list[Any] = [1, 2, 3, 4]
            rows[position] = "poison"
            tasks = [await submit_soon(batcher, row) for row in rows]
            gate.let(100)
            await first
            return await asyncio.gather(*tasks)

    answers = asyncio.run(scenario())
    assert "poison" == str(answers.pop(position)[0])
    assert [[2 * row] for row in (1, 2, 3, 4) if row != position + 1] == answers


def test_a_bad_row_among_a_callers_own_leaves_the_others() -> None:
    """The exception stands in the place of the row's answer."""

    async def scenario() -> list[Any]:
        async with batching(Gate()) as batcher:
            return await submit(batcher, 1, "poison", 3)

    first, error, third = asyncio.run(scenario())
    assert (2, 6) == (first, third)
    assert isinstance(error, ValueError)


def test_full_queue_refuses_and_says_when_to_come_back() -> None:
    """Nothing is queued beyond the limit; the wait follows the measured rate."""

    async def scenario() -> Full:
        gate = Gate(open=False)
        async with batching(gate, max_waiting_rows=2) as batcher:
            await submit_soon(batcher, 1)
            await gate.running()
            await submit_soon(batcher, 2, 3)
            with pytest.raises(Full) as refusal:
                await batcher.submit("q", [4])
            assert 2 == batcher.waiting_rows
            return refusal.value

    assert asyncio.run(scenario()).retry_after_s > 0


def test_who_was_let_in_is_not_refused_later() -> None:
    """What it has waited for is not thrown away."""

    async def scenario() -> list[Any]:
        gate = Gate(open=False)
        async with batching(gate, max_waiting_rows=1) as batcher:
            visit = Visit()
            first = asyncio.create_task(batcher.submit("q", [1], visit))
            await gate.running()
            other = await submit_soon(batcher, 2)
            with pytest.raises(Full):
                await batcher.submit("q", [3])
            second = asyncio.create_task(batcher.submit("q", [4, 5], visit))
            gate.let(9)
            return [(await first).rows, (await second).rows, await other]

    assert [[2], [8, 10], [4]] == asyncio.run(scenario())


def test_many_rows_get_in_where_one_would() -> None:
    """Else single ones would take each place that comes free, and many never be let in."""

    async def scenario() -> list[Any]:
        gate = Gate(open=False)
        async with batching(gate, max_waiting_rows=3) as batcher:
            await submit_soon(batcher, 1)
            await gate.running()
            await submit_soon(batcher, 2, 3)
            many = await submit_soon(batcher, *range(5))
            with pytest.raises(Full):
                await batcher.submit("q", [6])
            gate.let(9)
            return await many

    assert [0, 2, 4, 6, 8] == asyncio.run(scenario())


def test_who_would_spend_its_time_in_line_is_refused() -> None:
    """It hears at once when to come; those with more time are let in."""

    async def scenario() -> list[float]:
        gate, clock = Gate(open=False), Clock()
        async with batching(gate, clock=clock) as batcher:
            await submit_soon(batcher, 1, 2)
            await gate.running()
            clock.now = 0.2
            gate.let()
            await submit_soon(batcher, 3)
            await gate.running()
            batcher.check_room(1, until=clock.now - 1)  # nobody waits: it may be tried
            await submit_soon(batcher, *range(10))  # of which the next batch takes four
            refused = []
            for seconds in (0.5, 0.9, 1.1, math.inf):
                try:
                    batcher.check_room(1, until=clock.now + seconds)
                except Full as refusal:
                    refused.append(refusal.retry_after_s)
            return refused

    assert pytest.approx([0.6 - 0.3, 0.6 - 0.54]) == asyncio.run(scenario())


def test_a_visit_has_its_place_and_its_time_from_its_first_rows() -> None:
    """Its later rows go before those of newcomers; short time is refused, unless it was let in."""

    async def scenario() -> list[list[Any]]:
        gate, clock = Gate(open=False), Clock()
        batcher = Batcher({"a": Runner(gate, 4), "b": Runner(gate, 2)}, clock=clock)
        early, let_in = Visit(), Visit(until=2, admitted=True)
        tasks = [asyncio.create_task(batcher.submit("a", [1], early))]
        await gate.running()
        clock.now = 1.0
        gate.let()
        await tasks[0]
        tasks.append(asyncio.create_task(batcher.submit("a", [2])))
        await gate.running()
        tasks.append(asyncio.create_task(batcher.submit("a", [3, 4, 5, 6, 9])))
        await asyncio.sleep(0)
        clock.now = 1.5
        with pytest.raises(Full):
            await batcher.submit("b", [0], Visit(until=2))
        tasks.append(asyncio.create_task(batcher.submit("b", [7], early)))
        tasks.append(asyncio.create_task(batcher.submit("b", [8], let_in)))
        await asyncio.sleep(0)
        gate.let(9)
        await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        return gate.batches

    assert [[1], [2], [7, 8], [3, 4, 5, 6], [9]] == asyncio.run(scenario())


def test_rows_that_would_be_late_are_dropped_for_others() -> None:
    """Where more wait than a batch holds."""

    async def scenario() -> list[list[Any]]:
        gate, clock = Gate(open=False), Clock()
        async with batching(gate, max_rows=1, clock=clock) as batcher:
            for row in range(2):
                await submit_soon(batcher, row)
                await gate.running()
                if row == 0:
                    clock.now = 1.0
                    gate.let()
            hasty = Visit(until=3.0, admitted=True)
            late = asyncio.create_task(batcher.submit("q", [2], hasty))
            kept = await submit_soon(batcher, 3)
            clock.now = 2.5
            gate.let(9)
            await kept
            late.cancel()
        return gate.batches

    assert [[0], [1], [3]] == asyncio.run(scenario())


def test_closing_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    """Every caller from before gets an answer."""

    async def scenario() -> list[list[int]]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            tasks = [await submit_soon(batcher, 1)]
            await gate.running()
            tasks += [await submit_soon(batcher, row) for row in range(2, 12)]
            gate.let(100)
            await asyncio.to_thread(batcher.close)
            with pytest.raises(Closed):
                await batcher.submit("q", [0])
            assert not batcher.alive
            return await asyncio.gather(*tasks)

    assert [[2 * row] for row in range(1, 12)] == asyncio.run(scenario())


def test_lost_runner_answers_everybody_and_is_told() -> None:
    """Those in the batch, those that wait and those that come later all get an error."""
    told: list[Exception] = []

    async def scenario() -> list[Any]:
        gate = Gate(open=False)
        async with batching(gate, on_lost=told.append) as batcher:
            tasks = [await submit_soon(batcher, "lost")]
            await gate.running()
            tasks += [await submit_soon(batcher, row) for row in range(6)]
            gate.let()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(Closed):
                await batcher.submit("q", [1])
            return outcomes

    outcomes = asyncio.run(scenario())
    assert {Closed} == {type(one) for one in outcomes}
    assert ["the device fell off"] == [str(error) for error in told]


def test_answers_that_do_not_match_the_rows_are_errors() -> None:
    """A runner that loses an answer does not shift the others."""

    async def scenario() -> list[Any]:
        batcher = Batcher({"q": Runner(lambda rows: rows[1:], 4)})
        try:
            return await submit(batcher, 1, 2)
        finally:
            batcher.close()

    assert {ValueError} == {type(one) for one in asyncio.run(scenario())}


def test_thread_that_ends_for_any_reason_is_told() -> None:
    """Even a fault of the batcher's own surroundings leaves no caller waiting for ever."""
    told: list[Exception] = []
    lost = threading.Event()

    def fail(_report: object) -> None:
        raise LookupError("no such metric")

    def tell(error: Exception) -> None:
        told.append(error)
        lost.set()

    async def scenario() -> None:
        async with batching(Gate(), on_batch=fail, on_lost=tell) as batcher:
            await submit(batcher, 1)
            assert await asyncio.to_thread(lost.wait, 10)
            with pytest.raises(Closed):
                await submit(batcher, 2)

    asyncio.run(scenario())
    assert ["no such metric"] == [str(error).strip("'") for error in told]


def test_a_thread_that_cannot_form_a_batch_is_told() -> None:
    """Whoever waits for one is answered."""
    told: list[Exception] = []

    async def scenario() -> None:
        async with batching(Gate(), max_delay_s=math.inf, on_lost=told.append) as batcher:
            with pytest.raises(Closed):
                await submit(batcher, 1)

    asyncio.run(scenario())
    assert [OverflowError] == [type(error) for error in told]


def test_a_batch_is_reported_with_its_padding() -> None:
    """The runner says how far it fills a batch up; the report says so too."""
    reports: list[BatchReport] = []

    async def scenario() -> None:
        batcher = Batcher({"q": Runner(Gate(), 8, lambda rows: 8 - rows)}, on_batch=reports.append)
        await submit(batcher, 1, 2, 3)
        await asyncio.to_thread(batcher.close)

    asyncio.run(scenario())
    assert [("q", 3, 5)] == [(report.key, report.rows, report.padding) for report in reports]


def test_answers_say_how_long_they_waited_and_were_computed() -> None:
    """Waiting ends when the first row is in a batch, and computing when the last is answered."""
    clock = Clock()

    async def scenario() -> Answers:
        gate = Gate(open=False)
        async with batching(gate, max_rows=2, clock=clock) as batcher:
            first = await submit_soon(batcher, 0)
            await gate.running()
            second = asyncio.create_task(batcher.submit("q", [1, 2, 3]))
            await asyncio.sleep(0)
            clock.now = 5.0
            gate.let()
            await first
            for _ in range(2):
                await gate.running()
                clock.now += 1.0
                gate.let()
            return await second

    assert Answers([2, 4, 6], waited_s=5.0, computed_s=2.0) == asyncio.run(scenario())


def test_batches_run_side_by_side() -> None:
    """What comes while a thread is busy goes to another that is not."""

    async def scenario() -> list[list[int]]:
        gate = Gate(open=False)
        async with batching(gate, prepare=lambda: 2) as batcher:
            tasks = []
            for row in (1, 2):
                tasks.append(await submit_soon(batcher, row))
                await gate.running()
            gate.let(2)
            return await asyncio.gather(*tasks)

    assert [[2], [4]] == asyncio.run(scenario())


def test_few_rows_do_not_run_beside_others() -> None:
    """They wait until they are enough, or until nothing else runs."""

    async def scenario() -> list[list[int]]:
        gate = Gate(open=False)
        batcher = Batcher({"q": Runner(gate, 8, efficient_rows=3)}, prepare=lambda: 2)
        tasks = [await submit_soon(batcher, 1)]
        await gate.running()
        tasks += [await submit_soon(batcher, *rows) for rows in ((2, 3), (4,))]
        await gate.running()
        tasks.append(await submit_soon(batcher, 5))
        gate.let(3)
        await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        return gate.batches

    assert [[1], [2, 3, 4], [5]] == asyncio.run(scenario())


def test_idle_threads_divide_a_large_submission() -> None:
    """Its caller gets all answers, in order, and a time that is not counted twice."""
    clock = Clock()

    async def scenario() -> tuple[Answers, list[list[int]]]:
        gate = Gate(open=False)
        async with batching(gate, max_rows=8, prepare=lambda: 2, clock=clock) as batcher:
            task = asyncio.create_task(batcher.submit("q", range(6)))
            for _ in range(2):
                await gate.running()
            clock.now = 2.0
            gate.let(2)
            return await task, sorted(gate.batches)

    answers, batches = asyncio.run(scenario())
    assert Answers([0, 2, 4, 6, 8, 10], waited_s=0.0, computed_s=2.0) == answers
    assert [[0, 1, 2], [3, 4, 5]] == batches


def test_a_lost_runner_takes_no_batch_with_it_that_runs_elsewhere() -> None:
    """What another thread computes is answered, and then both end."""

    async def scenario() -> list[Any]:
        gate = Gate(open=False)
        async with batching(gate, prepare=lambda: 2) as batcher:
            tasks = []
            for row in (1, "lost"):
                tasks.append(await submit_soon(batcher, row))
                await gate.running()
            gate.let(2)
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(Closed):
                await submit(batcher, 3)
            assert await asyncio.to_thread(batcher.close, 10)
            return outcomes

    answered, told = asyncio.run(scenario())
    assert [2] == answered
    assert isinstance(told, Closed)


async def measure(batcher: Batcher) -> None:
    """Let the thread run a row, and wait until it is free again."""

    def wait() -> None:
        while batcher._running:
            time.sleep(0.001)

    await submit(batcher, 0)
    await asyncio.to_thread(wait)


def test_a_caller_that_leaves_before_its_lone_run_leaves_no_rows() -> None:
    """They would take room in the queue of an idle service."""

    async def scenario() -> int:
        async with running_anywhere() as (batcher, _):
            await measure(batcher)
            leaver = asyncio.create_task(batcher.submit("q", [2]))
            await asyncio.sleep(0)
            assert 1 == batcher.waiting_rows
            leaver.cancel()
            await asyncio.wait([leaver])
            return batcher.waiting_rows

    assert 0 == asyncio.run(scenario())


def test_a_caller_that_is_alone_runs_what_is_quick_itself() -> None:
    """The thread measures the first run; from then on nobody needs to be woken."""

    async def scenario() -> list[tuple[int, list[Any]]]:
        async with running_anywhere(seconds=0.001) as (batcher, runs):
            await measure(batcher)
            assert [[2], [3]] == [await submit(batcher, row) for row in (2, 3)]
            return runs

    (first, _), *others = asyncio.run(scenario())
    assert threading.get_ident() != first
    assert [(threading.get_ident(), [2]), (threading.get_ident(), [3])] == others


def test_what_is_slow_never_holds_up_the_loop() -> None:
    """However idle the service is."""

    async def scenario() -> set[int]:
        async with running_anywhere(seconds=0.1) as (batcher, runs):
            await measure(batcher)
            for row in (1, 2, 3):
                await submit(batcher, row)
            return {thread for thread, _ in runs}

    assert threading.get_ident() not in asyncio.run(scenario())


def test_callers_that_come_together_share_a_batch_on_the_thread() -> None:
    """The first of them does not run its row before the others have spoken."""

    async def scenario() -> list[tuple[int, list[Any]]]:
        async with running_anywhere() as (batcher, runs):
            await measure(batcher)
            runs.clear()
            await asyncio.gather(*(submit(batcher, row) for row in (1, 2, 3)))
            return runs

    runs = asyncio.run(scenario())
    assert threading.get_ident() not in {thread for thread, _ in runs}
    assert [1, 2, 3] == [row for _, rows in runs for row in rows]


def test_a_caller_that_runs_its_row_gets_its_error() -> None:
    """A bad row is the same on any thread, and so is the loss of the runner."""

    async def scenario() -> list[Any]:
        async with running_anywhere() as (batcher, _):
            await measure(batcher)
            answers = await submit(batcher, "poison")
            with pytest.raises(Closed):
                await submit(batcher, "lost")
            with pytest.raises(Closed):
                await submit(batcher, 1)
            await asyncio.to_thread(batcher.close, 10)
            assert not batcher.alive
            return answers

    assert {ValueError} == {type(one) for one in asyncio.run(scenario())}


def test_a_caller_that_leaves_before_its_turn_computes_nothing() -> None:
    """And the next is served as if it had never been there."""

    async def scenario() -> list[Any]:
        async with running_anywhere() as (batcher, runs):
            await measure(batcher)
            leaver = await submit_soon(batcher, 1)
            leaver.cancel()
            await asyncio.sleep(0)
            assert [2] == await submit(batcher, 2)
            return [rows for _, rows in runs]

    assert [[0], [2]] == asyncio.run(scenario())


def test_closing_waits_no_longer_than_it_is_told() -> None:
    """A runner that does not return is reported, not waited for."""

    async def scenario() -> tuple[bool, bool]:
        gate = Gate(open=False)
        async with batching(gate) as batcher:
            task = await submit_soon(batcher, 1)
            await gate.running()
            in_time = await asyncio.to_thread(batcher.close, 0.01)
            gate.let()
            await task
            return in_time, await asyncio.to_thread(batcher.close)

    assert (False, True) == asyncio.run(scenario())
