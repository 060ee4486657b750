"""A limit of the rows a second that one client may ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from service.errors import RateLimited

MAX_CALLERS = 10_000
"""This many clients are remembered. Beyond them, the one that was silent longest starts anew."""


class RateLimit:
    """A token bucket of rows for each client. A request costs at least one row.

    A caller that has a token may spend more than it has: a request may cost more than the bucket
    holds. It waits until the debt is paid. For one event loop alone.

    Args:
        rows_per_s: how fast a bucket fills.
        burst_rows: what it holds.
        clock: monotonic seconds.
    """

    def __init__(
        self, rows_per_s: float, burst_rows: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows_per_s, self._burst_rows, self._clock = rows_per_s, burst_rows, clock
        self._full_at: dict[Hashable, float] = {}
        """When a caller's bucket is full again; the caller that spent last is at the end."""

    def __repr__(self) -> str:
        return f"RateLimit({self._rows_per_s:g} rows/s of {len(self._full_at)} callers)"

    def spend(self, caller: Hashable, rows: int, *, paid: int = 0) -> None:
        """Take tokens.

        Args:
            caller: whose.
            rows: what the request costs in all.
            paid: tokens that this request has already taken.

        Raises:
            RateLimited: the caller has less than one token, `paid` included.
        """
        now = self._clock()
        full_at = max(self._full_at.get(caller, now), now)
        tokens = self._burst_rows - (full_at - now) * self._rows_per_s + paid
        if tokens < 1:
            wait_s = (1 - tokens) / self._rows_per_s
            text = f"more than {self._rows_per_s:g} rows a second; try again in {wait_s:.3g} s"
            raise RateLimited(text, retry_after_s=wait_s)
        self.owe(caller, max(rows, 1) - paid)

    def owe(self, caller: Hashable, rows: int) -> None:
        """Take tokens for what is computed already, whether the caller has them or not."""
        now = self._clock()
        full_at = max(self._full_at.pop(caller, now), now)
        self._full_at[caller] = full_at + rows / self._rows_per_s
        if len(self._full_at) > MAX_CALLERS:
            del self._full_at[next(iter(self._full_at))]
