"""The answers of batches, put together for each caller and handed over on its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from service.waiting import Answers, Part, Submission

Outcome = tuple[Submission, Answers | Exception]
"""A submission, and its answers or why there are none."""


def counted(answers: Sequence[Any], rows: int) -> Sequence[Any]:
    """The same answers.

    Raises:
        ValueError: there are not as many as rows.
    """
    if len(answers) != rows:
        raise ValueError(f"{rows} rows got {len(answers)} answers")
    return answers


def complete(parts: Iterable[Part], answers: Sequence[Any], now: float) -> list[Outcome]:
    """Put answers in their places; gives the submissions that have them all. For one thread."""
    whole: list[Outcome] = []
    position = 0
    for submission, start, stop in parts:
        submission.answers[start:stop] = answers[position : position + stop - start]
        position += stop - start
        submission.answered += stop - start
        if submission.answered == len(submission.rows):
            whole.append((submission, submission.outcome(now)))
    return whole


def deliver(outcomes: Iterable[Outcome]) -> None:
    """Settle futures on their loops' own threads, those of one loop at once."""
    here = _running_loop()
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for submission, outcome in outcomes:
        by_loop.setdefault(submission.loop, []).append((submission, outcome))
    for loop, settled in by_loop.items():
        if loop is here:
            _settle(settled)
            continue
        with suppress(RuntimeError):  # the loop was closed, and nobody waits there any more
            loop.call_soon_threadsafe(_settle, settled)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _settle(settled: list[Outcome]) -> None:
    for submission, outcome in settled:
        if submission.future.done():
            continue
        if isinstance(outcome, Exception):
            submission.future.set_exception(outcome)
        else:
            submission.future.set_result(outcome)
