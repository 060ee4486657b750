"""Copies of the bundles in the service's own folder, each tried before a worker opens it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.bundle.disk import open_file
from model.bundle.samples import SAMPLES
from service.errors import BundleRefused
from service.inference.bundles import find_bundles
from service.processes.candidates import refuse_candidates
from service.processes.folder import Revisions
from service.settings import Settings

log = logging.getLogger(__name__)
MAX_BUNDLES_BYTES = 1_000_000_000
"""The files of all bundles may hold this many bytes together. A reload needs twice as many."""
MAX_BUNDLE_FILES = 1_000
SPARE_BYTES = 20_000_000
"""A copy leaves this much of the disk free, which workers need to start: their metrics."""
_CHUNK_BYTES = 1_000_000
"""A file is copied in chunks of this many bytes."""
_PREFIX = "copy-"


class Snapshots:
    """Copies of the bundles, in a folder each. One of them is current.

    A copy has only bundles that `refuse_candidates` did not refuse. Copies are made and removed
    within `lock`.
    """

    def __init__(self, folder: Path, revisions: Revisions) -> None:
        self._folder, self._revisions = folder, revisions

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep other workers from making a copy, until the context or this process ends.

        Before and after, every copy is removed except the current one: a killed worker leaves some.

        Args:
            wait: wait while another worker makes a copy.

        Raises:
            BlockingIOError: another worker makes a copy, and `wait` is false.
        """
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            self._remove_others()
            try:
                yield
            finally:
                self._remove_others()

    def _remove_others(self) -> None:
        current = self._revisions.current
        for path in self._folder.glob(f"{_PREFIX}*"):
            if str(path) != current.bundles:
                shutil.rmtree(path, ignore_errors=True)

    def take(self, settings: Settings, *, strict: bool = True) -> str:
        """Copy the bundles on disk, and return the folder of the copy.

        It is that of the current copy if that has the same files.

        Args:
            settings: name the folder and the bundles.
            strict: raise if a bundle cannot be copied or opened; otherwise log it and leave it out.

        Raises:
            OSError: a bundle cannot be copied, or the disk has no room for it.
            BundleRefused: a bundle cannot be opened, if `strict`.
        """
        copy = Path(tempfile.mkdtemp(dir=self._folder, prefix=_PREFIX))
        current = self._revisions.current.bundles
        known = _files(Path(current)) if current else {}

        def refuse(name: str, error: Exception) -> None:
            if strict:
                raise error
            log.error("bundle skipped: %s", error)
            shutil.rmtree(copy / name, ignore_errors=True)

        left = MAX_BUNDLES_BYTES
        for path in find_bundles(settings.bundles, settings.models):
            if path.is_dir():  # else loading says so
                try:
                    left -= _copy_bundle(path, copy / path.name, left)
                except OSError as error:
                    refuse(path.name, error)
        files = _files(copy)
        if current and files == known:
            return current
        changed = sorted({path.parts[0] for path, _ in files.items() - known.items()})
        for path, reason in refuse_candidates([copy / name for name in changed]).items():
            refuse(path.name, BundleRefused(reason.replace(str(copy), str(settings.bundles))))
        return str(copy)


def _copy_bundle(source: Path, target: Path, most: int) -> int:
    """Copy a bundle's files and its samples, and return how many bytes they have.

    Links are followed within the bundle's own folder. A copy of a link to elsewhere would have
    onnxruntime read a file that it refuses to read there.

    Args:
        source: the bundle.
        target: a folder that does not exist.
        most: the bytes that the copy may have.

    Raises:
        OSError: a file cannot be read, lies outside or is a pipe or a device, there are too many
            files or bytes, or the disk has no room for them.
    """
    folder, left = source.resolve(), most
    parts = [part for part in (source, source / SAMPLES) if part.is_dir()]
    files = [path for part in parts for path in part.iterdir() if not path.is_dir()]
    if len(files) > MAX_BUNDLE_FILES:
        raise OSError(f"{source} has more than {MAX_BUNDLE_FILES:,} files")
    (target / SAMPLES).mkdir(parents=True)
    for path in files:
        left -= _copy(path, target / path.relative_to(source), left, folder)
    return most - left


def _copy(source: Path, target: Path, most: int, folder: Path) -> int:
    """Copy a file of at most `most` bytes within a folder, and return how many it has."""
    _check_inside(source, source, folder)
    with open_file(source) as reading, target.open("wb") as writing:
        if (opened := Path(f"/proc/self/fd/{reading.fileno()}")).exists():  # Linux
            _check_inside(source, opened, folder)  # it may have become a link meanwhile
        size, free = os.fstat(reading.fileno()).st_size, shutil.disk_usage(target.parent).free
        if size > most:
            raise OSError(f"with {source}, the bundles have more than {MAX_BUNDLES_BYTES:,} bytes")
        if size + SPARE_BYTES > free:
            room = f"the disk has room for {max(0, free - SPARE_BYTES):,} bytes, not for {size:,}"
            raise OSError(errno.ENOSPC, f"{source} is not copied: {room}")
        left = size
        while chunk := reading.read(min(_CHUNK_BYTES, left)):  # no more, should it grow meanwhile
            left -= writing.write(chunk)
        return size


def _check_inside(path: Path, link: Path, folder: Path) -> None:
    if not Path(os.path.realpath(link)).is_relative_to(folder):  # also of a link to itself
        raise OSError(f"{path} is a link to a file outside the bundle")


def _files(folder: Path) -> dict[Path, bytes]:
    """The digests of all files below a folder, by their path in it."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                files[path.relative_to(folder)] = hashlib.file_digest(file, "sha256").digest()
    return files
