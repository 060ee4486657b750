"""The service's own folder, and which bundles and keys its processes serve, in files in it.

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


class Revision(NamedTuple):
    """Bundles and keys that a worker serves; empty texts before there are any."""

    bundles: str = ""
    """The folder of a copy of the bundles."""
    keys: str = ""
    """The digests of the API keys, as `Access.dump` gives them."""


class Revisions:
    """What all workers are to serve, what each serves, and whether a reload is requested.

    Each is a file that all processes can read. The files of workers are named by their slot: a
    worker that replaces another has its slot.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers

    @property
    def current(self) -> Revision:
        """What all workers are to serve."""
        return Revision(*map(self._read, Revision._fields))

    def change(self, **parts: str) -> None:
        """Have all workers serve other keys, or other bundles."""
        for name, text in parts.items():
            self._write(name, text)

    def report(self, slot: int, revision: Revision) -> None:
        """Record what a worker serves."""
        self._write(f"serving-{slot}", "\n".join(revision))

    def clear(self, slot: int) -> None:
        """Remove the files of a worker that has ended, except its counters."""
        for pattern in (f"serving-{slot}", f"gauge_live*_{slot}.db"):
            for path in self._folder.glob(pattern):
                path.unlink()

    def served_by(self, slot: int) -> Revision:
        """What a worker serves; nothing if it cannot answer."""
        return Revision(*self._read(f"serving-{slot}").split("\n"))

    @property
    def served(self) -> list[Revision]:
        """What the workers serve that can answer."""
        revisions = map(self.served_by, range(self._workers))
        return [revision for revision in revisions if revision.bundles]

    def count_workers(self) -> dict[str, int]:
        """How many workers the settings ask for, and how many can answer."""
        return {"wanted": self._workers, "ready": len(self.served)}

    def request_reload(self) -> None:
        """Have one worker reload the bundles for all."""
        (self._folder / "reload").touch()

    def take_request(self) -> bool:
        """Take a requested reload. Return False if none is requested, or another worker took it."""
        with suppress(FileNotFoundError):
            (self._folder / "reload").unlink()
            return True
        return False

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except FileNotFoundError:
            return ""

    def _write(self, name: str, text: str) -> None:
        """Replace a file in one step, because others read it."""
        part = self._folder / f".{name}.{os.getpid()}"
        part.write_text(text)
        part.replace(self._folder / name)
