"""Measure the stages of one request."""

from __future__ import annotations

import time
from collections import defaultdict
from contextvars import ContextVar

from opentelemetry import trace

from service.telemetry.tracing import current_span

_current: ContextVar[dict[str, float] | None] = ContextVar("timings", default=None)


def collect() -> dict[str, float]:
    """Collect what `record` adds in the current task from now on: seconds by stage."""
    seconds: dict[str, float] = defaultdict(float)
    _current.set(seconds)
    return seconds


def record(stage: str, seconds: float, *, ended_s_ago: float = 0) -> None:
    """Add to a stage of the request that this task works for, if any, and to its trace."""
    collected = _current.get()
    if collected is not None:
        collected[stage] += seconds
    if current_span():
        ended = time.time_ns() - round(1e9 * ended_s_ago)
        started = ended - round(1e9 * seconds)
        trace.get_tracer(__name__).start_span(stage, start_time=started).end(ended)
