"""What large bodies leave behind: glibc keeps freed memory, and a process stays at its peak."""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any

_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""There is none but in glibc."""
LARGE_BYTES = 50_000_000
_PAUSE_S = 1.0


class Freed:
    """Counts freed bytes and, when there are many, returns the memory to the system.

    At most once a second, on a thread: a quarter of a gigabyte takes some ten milliseconds.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, size: int) -> None:
        """Count bytes that are about to be freed."""
        self._bytes += size
        if _TRIM and self._bytes >= LARGE_BYTES and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._trim)

    def _trim(self) -> None:
        self._timer, self._bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, _TRIM, 0)
