"""The number of CPU threads, chosen by the time of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median

import torch

from model.bundle import Bundle
from model.runtime import Runtime

_STEPS = 3
"""The steps that each number of threads is tried for; the first one after a change is not timed."""
AGAIN_S = 120.0
"""Seconds from one choice to the next trial."""


class ThreadChooser:
    """Tries one thread and all threads for a few steps, keeps the faster, and tries again later.

    Threads that share a core with another program wait for each other in every operation: on two
    cores of which one was busy, all threads were 7 to 22 times slower than one.

    Args:
        counts: the numbers of threads to try; by default one and torch's own.
        set_count: sets the number of threads.
        clock: seconds.
    """

    def __init__(
        self,
        counts: Sequence[int] | None = None,
        *,
        set_count: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counts = sorted(set(counts or (1, torch.get_num_threads())))
        self._set_count, self._clock = set_count, clock
        self._seconds: dict[int, list[float]] = {}
        self._last: float | None = None
        self._try_again_at = 0.0
        self.count = self._counts[-1]
        """The number of threads of the next step."""

    @property
    def has_chosen(self) -> bool:
        """Whether the trial is over."""
        return len(self._counts) == 1 or self._try_again_at > 0

    def end_step(self) -> None:
        """Time a step that has just ended, and choose the threads of the next one."""
        now = self._clock()
        if len(self._counts) == 1 or now < self._try_again_at:
            return
        seconds = self._seconds.setdefault(self.count, [])
        if self._last is not None:
            seconds.append(now - self._last)
        self._last = now
        if len(seconds) <= _STEPS:  # the first one is not counted
            return
        untried = [count for count in self._counts if count not in self._seconds]
        if untried:
            self._use(untried[0])
            return
        self._use(min(self._seconds, key=lambda count: median(self._seconds[count][1:])))
        self._seconds, self._last, self._try_again_at = {}, None, now + AGAIN_S

    def _use(self, count: int) -> None:
        if count != self.count:
            self._set_count(count)
        self.count, self._last = count, None


@cache
def choose_threads() -> int:
    """The number of threads with which this process convolves faster now: one, or all."""
    chooser, images = ThreadChooser(), torch.rand(32, 16, 32, 32)
    layer = torch.nn.Conv2d(16, 32, 5)
    with torch.inference_mode():
        while not chooser.has_chosen:
            layer(images)
            chooser.end_step()
    return chooser.count


def open_runtime(bundle: Bundle) -> Runtime:
    """The runtime of a bundle, with as many threads as are fast now."""
    return Runtime(bundle, threads=choose_threads())
