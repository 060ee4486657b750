"""Measure the stages of one request."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextvars import ContextVar

from opentelemetry import trace

_current: ContextVar[dict[str, float] | None] = ContextVar("timings", default=None)


def current_span() -> trace.Span | None:
    """The span of the request that this task works for, if traces are recorded."""
    if "opentelemetry.sdk" not in sys.modules:
        return None
    span = trace.get_current_span()
    return span if span.is_recording() else None


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
