"""What a process in bad hands may do, for tests."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress


def answer_raw(content: bytes) -> None:
    """Write bytes to the pool in place of an answer, and end."""
    for descriptor in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, content)
    os._exit(0)


def burn(seconds: float) -> None:
    """Take so much CPU time."""
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass
