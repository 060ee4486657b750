"""Draw figures in a process of their own, because they take long. This module knows no HTTP."""

from __future__ import annotations

from model.views import MODULES
from service.pool.pool import ForkServer, Pool

DRAW_CPU_S = 10.0
"""A drawing may take this much CPU time."""
_IMPORTED = (*MODULES, "matplotlib.figure", "matplotlib.backends.backend_agg")
MAX_WAITING = 8
"""This many drawings may wait, each a fifth of a second. Beyond that, the caller that has most of
them is refused."""


def open_pool(memory_bytes: int = 500_000_000) -> Pool:
    """Open a pool of one process that draws.

    It starts with the first drawing: matplotlib takes 110 MB.

    Args:
        memory_bytes: for a drawing, beyond that.
    """
    fork_server = ForkServer(*_IMPORTED, memory_bytes=memory_bytes)
    return Pool(fork_server, processes=1, limit=MAX_WAITING)
