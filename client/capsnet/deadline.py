"""How long a call may take, its repetitions included."""

from __future__ import annotations

import time

from capsnet.errors import DeadlineExceeded, Problem

DEFAULT_PAUSE_S = 1.0
"""The pause before the next attempt, if the service names none."""
_MIN_PAUSE_S = 0.05
_BUSY = (429, 503)


class Deadline:
    """Begins when it is made."""

    def __init__(self, timeout_s: float) -> None:
        if not 0 < timeout_s < float("inf"):
            raise ValueError(f"timeout_s is a positive number of seconds, not {timeout_s}")
        self.timeout_s = timeout_s
        self.end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """The seconds that are left.

        Raises:
            DeadlineExceeded: no time is left.
        """
        left = self.end - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"no answer within {self.timeout_s:g} s")
        return left

    def pause_s(self, error: Exception) -> float | bool:
        """The pause before a busy service is asked again; False if it is not asked again.

        A request that cannot be answered before the deadline is not repeated.
        """
        if not isinstance(error, Problem) or error.status not in _BUSY:
            return False
        wanted = DEFAULT_PAUSE_S if error.retry_after_s is None else error.retry_after_s
        pause = max(_MIN_PAUSE_S, wanted)
        return pause if time.monotonic() + pause < self.end else False


def parse_retry_after(value: str | None) -> float | None:
    """The seconds of a `Retry-After` header.

    None if there is no such header, or if it is a date, which the service does not send.
    """
    if value is None or not (value.isascii() and value.strip().isdigit()):
        return None
    return float(value)
