"""Where the time of one request goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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


def note(stage: str, seconds: float) -> None:
    """Add to a stage of the request that this task works for, if any."""
    collected = _current.get()
    if collected is not None:
        collected[stage] += seconds


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
