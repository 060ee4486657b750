"""What a process in bad hands may do, for tests."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def answer_raw(content: bytes) -> None:
    """Write bytes to the pool in place of an answer, and end."""
    for descriptor in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, content)
    os._exit(0)
