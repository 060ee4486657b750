"""Where the time of one request goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace

_current: ContextVar[dict[str, float] | None] = ContextVar("timings", default=None)


@contextmanager
def collecting() -> Iterator[dict[str, float]]:
    """Within it, `note` adds to the yielded dictionary: seconds by stage."""
    seconds: dict[str, float] = defaultdict(float)
    token = _current.set(seconds)
    try:
        yield seconds
    finally:
        _current.reset(token)


def note(stage: str, seconds: float, *, ended_s_ago: float = 0) -> None:
    """Add to a stage of the request that this task works for, if any, and to its trace."""
    collected = _current.get()
    if collected is not None:
        collected[stage] += seconds
    if trace.get_current_span().is_recording():
        ended = time.time_ns() - round(1e9 * ended_s_ago)
        started = ended - round(1e9 * seconds)
        trace.get_tracer(__name__).start_span(stage, start_time=started).end(ended)


@contextmanager
def timing(stage: str) -> Iterator[None]:
    """Note how long a block took."""
    started = time.perf_counter()
    try:
        yield
    finally:
        note(stage, time.perf_counter() - started)


def server_timing(seconds: dict[str, float]) -> str:
    """The value of a `Server-Timing` header, in milliseconds."""
    return ", ".join(f"{stage};dur={1000 * value:.2f}" for stage, value in seconds.items())
