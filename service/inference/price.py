"""Everything that computes has a price in rows, which admission and the limit of a key count.

Rows of a network are admitted and charged before they are computed. Whatever else a request makes
the service compute, such as drawings, JSON and the decoding of files, is measured while it runs,
and charged when it is done.
"""

from __future__ import annotations

from contextvars import ContextVar

ROW_S = 0.0027
"""Seconds of a core that count as one row: those of the most expensive network's row."""


class Meter:
    """Seconds that one request has taken, without those of its rows."""

    seconds = 0.0

    @property
    def rows(self) -> int:
        """The price of these seconds."""
        return int(self.seconds / ROW_S)


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


def open_meter() -> Meter:
    """Measure what `charge_time` adds in the current task, and in those that it starts."""
    meter = Meter()
    _current.set(meter)
    return meter


def charge_time(seconds: float) -> None:
    """Charge the request that this task works for, if any."""
    if meter := _current.get():
        meter.seconds += seconds
