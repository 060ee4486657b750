"""Makes a fork server's second fork fail, as one does where a limit of processes is reached."""

from __future__ import annotations

import errno
import os
from itertools import count

_forks, _fork = count(1), os.fork


def fork() -> int:
    """Fork, but the second time."""
    if next(_forks) == 2:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return _fork()


os.fork = fork
