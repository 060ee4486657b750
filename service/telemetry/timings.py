"""Measure the stages of one request."""

from __future__ import annotations

from collections import defaultdict
from contextvars import ContextVar

_current: ContextVar[dict[str, float] | None] = ContextVar("timings", default=None)


def collect() -> dict[str, float]:
    """Collect what `record` adds in the current task from now on: seconds by stage."""
    seconds: dict[str, float] = defaultdict(float)
    _current.set(seconds)
    return seconds


def record(stage: str, seconds: float) -> None:
    """Add to a stage of the request that this task works for, if any."""
    collected = _current.get()
    if collected is not None:
        collected[stage] += seconds
