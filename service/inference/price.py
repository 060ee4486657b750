"""Everything that computes has a price in rows, which admission and the limit of a key count.

Rows of a network are admitted and charged before they are computed. Whatever else a request makes
the service compute, such as drawings, JSON and the decoding of files, is measured while it runs,
and charged when it is done.

A row of a large network costs as much as several of a small one. What it takes is measured when the
network is loaded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from model.outputs import Graph

ROW_S = 0.0027
"""Seconds of a core that count as one row: those of the most expensive network's row."""


def row_prices(core_s: Mapping[tuple[str, Graph], float]) -> dict[tuple[str, Graph], int]:
    """The price in rows of one row of each graph of each network.

    One costs as many rows as it takes times the seconds of a row: `ROW_S`, or those of the quickest
    encoder on a machine where that takes longer.

    Args:
        core_s: seconds of a core that a row takes, by the network's name and the graph.
    """
    quickest = min((s for (_, graph), s in core_s.items() if graph == "encode"), default=0.0)
    unit_s = max(ROW_S, quickest)
    return {key: max(1, int(seconds / unit_s)) for key, seconds in core_s.items()}


@dataclass
class Meter:
    """Seconds that one request has taken, without those of its rows."""

    owner: Hashable
    """The key or the address that the request comes from."""
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """The price of these seconds."""
        return int(self.seconds / ROW_S)


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


def open_meter(owner: Hashable = None) -> Meter:
    """Measure what `charge_time` adds in the current task, and in those that it starts."""
    meter = Meter(owner)
    _current.set(meter)
    return meter


def current_owner() -> Hashable:
    """Return whom the current task works for, by the key or the address of the request."""
    meter = _current.get()
    return meter.owner if meter else None


def charge_time(seconds: float) -> None:
    """Charge the request that this task works for, if any."""
    if meter := _current.get():
        meter.seconds += seconds
