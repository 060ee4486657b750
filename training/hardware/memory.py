"""Memory that is freed in one step serves the next."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Ask the C library not to hand freed memory back to the kernel.

    A step on a CPU makes and frees the same large tensors, and by default each comes as new pages
    that the kernel must clear at first touch: two fifths of a step's time.

    Returns:
        whether the C library could be asked; glibc alone can.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl and macOS have none, Windows no such name
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
