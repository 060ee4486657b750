"""The service's own folder: removed at the end, and by the next start if the service was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "capsnet-"
_IN_USE = "in-use"
"""A file that each process of the service holds a lock on."""


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder that no other user may open; remove it at the end.

    Folders of services of which no process runs any more are removed first.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        with (path / f".{_IN_USE}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            (path / f".{_IN_USE}").rename(path / _IN_USE)  # never there without a lock
            yield path


def hold(folder: Path) -> int:
    """Keep other services from removing a folder, until the returned descriptor is closed.

    A worker may outlive its supervisor by its drain.
    """
    descriptor = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_abandoned(temporary: Path) -> None:
    """Remove the folders of this user's services that have no process left."""
    for folder in temporary.glob(f"{PREFIX}*"):
        with suppress(OSError):  # of another user, in use, or just removed
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / _IN_USE).open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
