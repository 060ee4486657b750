"""State that the processes of one service share, as files in a folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


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
        self.wanted = workers

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
        for slot in range(self.wanted):
            with suppress(FileNotFoundError):
                bundles, keys = (self.folder / f"serving-{slot}").read_text().split()
                workers.append(ReadyWorker(bundles, keys))
        return workers

    @property
    def ready(self) -> int:
        """How many workers can answer."""
        return len(self.ready_workers)

    def request_reload(self) -> None:
        """Have one worker reload the bundles for all."""
        (self.folder / "reload").touch()

    @property
    def wants_reload(self) -> bool:
        """Whether a reload is requested."""
        return (self.folder / "reload").exists()

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
