from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.waiting import Batch, Runner, Submission, Waiting


@pytest.fixture
def submission() -> Callable[..., Submission]:
    """Makes submissions that arrived at a given time."""

    def make(
        *rows: int, arrived: float = 0.0, since: float | None = None, until: float = math.inf
    ) -> Submission:
        loop = asyncio.new_event_loop()
        since = arrived if since is None else since
        made = Submission(rows, loop, loop.create_future(), arrived, since, until)
        loop.close()
        return made

    return make


def rows_of(batch: Batch | float | None) -> list[Any]:
    assert isinstance(batch, Batch)
    return [row for part in batch.parts for row in part.rows]


def test_turns_go_to_the_queue_that_waited_longest(submission: Callable[..., Submission]) -> None:
    """A busy bundle does not starve another."""
    waiting = Waiting({"a": Runner(list, 2), "b": Runner(list, 2)})
    for arrived, key in ((0, "a"), (1, "b"), (2, "a"), (3, "a")):
        waiting.add(key, submission(arrived, arrived=arrived))
    assert [[0, 2], [1], [3]] == [rows_of(waiting.form(4)) for _ in range(3)]
    assert waiting.form(4) is None


def test_delay_counts_from_the_oldest_row(submission: Callable[..., Submission]) -> None:
    """Newcomers do not prolong the wait of the first."""
    waiting = Waiting({"q": Runner(list, 4)}, max_delay_s=0.010)
    waiting.add("q", submission(1, arrived=5.000))
    waiting.add("q", submission(2, arrived=5.009))
    assert 0.001 == pytest.approx(waiting.form(5.009))
    assert [1, 2] == rows_of(waiting.form(5.010))


def test_full_batch_does_not_wait(submission: Callable[..., Submission]) -> None:
    """The delay ends when the batch is full."""
    waiting = Waiting({"q": Runner(list, 2)}, max_delay_s=10)
    waiting.add("q", submission(1, 2, 3))
    assert [1, 2] == rows_of(waiting.form(0))


@pytest.mark.parametrize(
    ("rows", "idle", "efficient", "expected"),
    [
        (8, 2, 1, 4),
        (7, 2, 1, 4),
        (8, 2, 6, 8),
        (8, 2, 4, 4),
        (7, 2, 4, 7),
        (8, 1, 1, 8),
        (20, 2, 1, 8),
        (1, 4, 2, 1),
    ],
)
def test_an_idle_thread_takes_its_share(
    submission: Callable[..., Submission], rows: int, idle: int, efficient: int, expected: int
) -> None:
    """All where the rest would be too few for another, and no more than a batch holds."""
    waiting = Waiting({"q": Runner(list, 8, efficient_rows=efficient)})
    waiting.add("q", submission(*range(rows)))
    assert expected == len(rows_of(waiting.form(0, idle=idle)))


def test_a_batch_begins_beside_another_if_it_is_efficient(
    submission: Callable[..., Submission],
) -> None:
    """Then it is the turn of whoever has waited longest: few rows do not starve behind many."""
    waiting = Waiting({"a": Runner(list, 8, efficient_rows=2), "b": Runner(list, 8)})
    waiting.add("a", submission(1, arrived=0))
    assert not waiting.ready("a", running=1)
    assert waiting.form(2, running=1) is None
    waiting.add("b", submission(2, arrived=1))
    assert [[1], [2]] == [rows_of(waiting.form(2, running=1)) for _ in range(2)]
    waiting.add("a", submission(3, 4, arrived=2))
    assert waiting.ready("a", running=1)
    assert [3, 4] == rows_of(waiting.form(2, running=1))


def test_a_full_batch_does_not_wait_for_another_queue_s_delay(
    submission: Callable[..., Submission],
) -> None:
    """Only rows that others may still join are held back."""
    waiting = Waiting({"a": Runner(list, 2), "b": Runner(list, 2)}, max_delay_s=10)
    waiting.add("a", submission(1, arrived=0))
    waiting.add("b", submission(2, 3, arrived=1))
    assert [2, 3] == rows_of(waiting.form(2))
    assert 8 == waiting.form(2)
    assert [1] == rows_of(waiting.form(10))


def test_what_is_dropped_makes_room(submission: Callable[..., Submission]) -> None:
    """Also where a batch has taken a part of it; and it can be dropped twice."""
    waiting = Waiting({"q": Runner(list, 2)})
    left, half = submission(1, 2), submission(3, 4, 5)
    for one in (left, half, submission(6)):
        waiting.add("q", one)
    for _ in range(2):
        waiting.drop("q", left)
    assert [3, 4] == rows_of(waiting.form(0))
    waiting.drop("q", half)
    assert 1 == waiting.rows
    assert [6] == rows_of(waiting.form(0))


def test_queues_take_turns_by_when_callers_came(submission: Callable[..., Submission]) -> None:
    """A caller's second submission goes before those who came after its first."""
    waiting = Waiting({"encode": Runner(list, 2), "decode": Runner(list, 2)})
    waiting.add("encode", submission(1, arrived=1))
    waiting.add("decode", submission(2, arrived=2, since=0))
    assert [[2], [1]] == [rows_of(waiting.form(2)) for _ in range(2)]


def test_what_would_be_too_late_is_not_computed(submission: Callable[..., Submission]) -> None:
    """Those whose time is enough are answered, however many wait before them."""
    waiting = Waiting({"q": Runner(list, 2)})
    waiting.note("q", 1, 1.0)
    for row, until in ((1, 10.5), (2, 12), (3, 10.9), (4, 11.5)):
        waiting.add("q", submission(row, until=until))
    assert [2, 4] == rows_of(waiting.form(10))
    assert 0 == waiting.rows


def test_what_fits_into_a_batch_is_always_tried(submission: Callable[..., Submission]) -> None:
    """It may take less time than the last one, which may have been larger."""
    waiting = Waiting({"q": Runner(list, 2)})
    waiting.note("q", 1, 1.0)
    waiting.add("q", submission(1, until=0.5))
    assert [1] == rows_of(waiting.form(0))


def test_one_slow_batch_does_not_keep_everybody_out(submission: Callable[..., Submission]) -> None:
    """What it took is believed less each time that rows are dropped for it."""
    waiting = Waiting({"q": Runner(list, 1)})
    waiting.note("q", 1, 8.0)
    kept = []
    for now in range(6):
        for row in (1, 2):
            waiting.add("q", submission(row, arrived=now, until=now + 1.5))
        kept.append(isinstance(waiting.form(now), Batch))
        waiting.form(now)  # what is left
    assert [False, False, False, True, True, True] == kept


def test_rows_can_be_read_while_batches_are_formed(submission: Callable[..., Submission]) -> None:
    """Admission and metrics read them without a lock, on other threads."""
    waiting = Waiting({key: Runner(list, 1) for key in "abcdef"})
    one = submission(1)
    stop = threading.Event()

    def add_and_form() -> None:
        while not stop.is_set():
            for key in "abcdef":
                waiting.add(key, replace(one))
            while waiting.form(1):
                pass

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    worker = threading.Thread(target=add_and_form)
    worker.start()
    try:
        for _ in range(20_000):
            assert 0 <= waiting.rows <= 6
    finally:
        stop.set()
        worker.join()
        sys.setswitchinterval(before)
