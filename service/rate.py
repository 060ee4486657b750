"""How fast rows go through, and when those should come back that found no room."""

from __future__ import annotations

import time
from collections.abc import Callable

_UNKNOWN_S = 1.0
LONGEST_S = 30.0
"""The latest that anybody is told to come back."""


class Rate:
    """Rows a second, smoothed over the last batches."""

    def __init__(self, *, memory: float = 0.9) -> None:
        self._memory = memory
        self._rows = 0.0
        self._seconds = 0.0

    @property
    def rows_per_s(self) -> float:
        """Zero before anything was measured."""
        return self._rows / self._seconds if self._seconds else 0.0

    def seconds(self, rows: int) -> float:
        """How long so many rows take; zero before anything was measured."""
        return rows * self._seconds / self._rows if self._rows else 0.0

    def note(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._rows = self._memory * self._rows + rows
        self._seconds = self._memory * self._seconds + seconds


class Refusals:
    """Tells callers that are sent away when to come back: one behind the other.

    Told the same time they would come back at once, and most be sent away again.

    Args:
        rate: at which room is made.
        clock: monotonic seconds.
    """

    def __init__(self, rate: Rate, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._promised_until = 0.0
        """When there should be room for all that were sent away so far."""

    def retry_after_s(self, rows: int) -> float:
        """When there should be room for these rows; one second where the rate is not known."""
        if not self._rate.rows_per_s:
            return _UNKNOWN_S
        now = self._clock()
        earlier_s = max(0.0, self._promised_until - now)
        wait_s = min(earlier_s + self._rate.seconds(rows), LONGEST_S)
        self._promised_until = now + wait_s
        return wait_s
