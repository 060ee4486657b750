"""The service's own folder, and what its processes tell each other in it.

It is removed at the end, and by the next start if the service was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

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


class ReadyWorker(NamedTuple):
    """A worker that can answer."""

    bundles: str
    """The digest of the bundles that it answers with."""
    keys: str
    """The digest of the keys that it answers with."""


class WorkerRegistry:
    """Records which workers serve, and whether a reload is requested, in files that all can read.

    The files are named by worker slot. A worker that replaces another has its slot.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self._workers = workers

    def report(self, slot: int, bundles: str, keys: str) -> None:
        """Record the digests of the bundles and of the keys that this worker serves."""
        replace_text(self.folder / f"serving-{slot}", f"{bundles} {keys}")

    def clear(self, slot: int) -> None:
        """Remove the files of a worker that has ended, except its counters."""
        for pattern in (f"serving-{slot}", f"gauge_live*_{slot}.db"):
            for path in self.folder.glob(pattern):
                path.unlink()

    @property
    def ready_workers(self) -> list[ReadyWorker]:
        """The workers that can answer."""
        workers = []
        for slot in range(self._workers):
            with suppress(FileNotFoundError):
                bundles, keys = (self.folder / f"serving-{slot}").read_text().split()
                workers.append(ReadyWorker(bundles, keys))
        return workers

    def count_workers(self) -> dict[str, int]:
        """How many workers the settings ask for, and how many can answer."""
        return {"wanted": self._workers, "ready": len(self.ready_workers)}

    def request_reload(self) -> None:
        """Have one worker reload the bundles for all."""
        (self.folder / "reload").touch()

    def take_request(self) -> bool:
        """Take a requested reload. Return False if none is requested, or another worker took it."""
        with suppress(FileNotFoundError):
            (self.folder / "reload").unlink()
            return True
        return False


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, because others read it."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)
