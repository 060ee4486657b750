"""Copies of the bundles in the service's own folder, and which of them all workers are to serve."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from model.bundle.disk import open_file
from model.bundle.samples import SAMPLES
from service.inference.bundles import ReloadRefused, find_bundles
from service.processes.candidates import refuse_candidates
from service.processes.folder import replace_text
from service.settings import Settings

log = logging.getLogger(__name__)
MAX_BUNDLES_BYTES = 1_000_000_000
"""The files of all bundles may hold this many bytes together. A reload needs twice as many."""
MAX_BUNDLE_FILES = 1_000
SPARE_BYTES = 20_000_000
"""A copy leaves this much of the disk free, which workers need to start: their metrics."""
_CHUNK_BYTES = 1_000_000
"""A file is copied in chunks of this many bytes."""
_DIGEST_DIGITS = 16


class LockHeld(Exception):
    """Another worker is making a copy."""


class Revision(NamedTuple):
    """The bundles and keys that all workers are to serve."""

    bundles: str
    """The digest that names a copy of the bundles."""
    keys: str
    """The digests of the API keys, as `Access.dump` gives them."""

    @property
    def keys_digest(self) -> str:
        """A digest of the keys' digests."""
        return hashlib.sha256(self.keys.encode()).hexdigest()[:_DIGEST_DIGITS]


class Snapshots:
    """Copies of the bundles, each named by a digest of its content, and the current one.

    A copy has only bundles that `refuse_candidates` did not refuse. Copies are made and removed
    within `lock`; the current revision changes without it, so that keys need not wait for bundles.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current = folder / "current"
        self._snapshots = folder / "snapshots"
        self._snapshots.mkdir(exist_ok=True)

    @property
    def current(self) -> Revision | None:
        """The revision that all workers are to serve; None before the first `change`."""
        try:
            return Revision(*self._current.read_text().split("\n"))
        except FileNotFoundError:
            return None

    def change(self, **parts: str) -> Revision:
        """Have all workers serve other bundles, or other keys, and return the whole revision."""
        with (self._folder / "current.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            revision = (self.current or Revision("", ""))._replace(**parts)
            replace_text(self._current, "\n".join(revision))
        return revision

    def bundles(self, digest: str) -> Path:
        """The folder of a copy's bundles."""
        return self._snapshots / digest / "bundles"

    def take(self, settings: Settings, *, strict: bool = True) -> str:
        """Copy the bundles on disk, and return the digest of the copy.

        Args:
            settings: name the folder and the bundles, and limit what opening one may take.
            strict: raise if a bundle cannot be copied or opened; otherwise log it and leave it out.

        Raises:
            OSError: a bundle cannot be copied, or the disk has no room for it.
            ReloadRefused: a bundle cannot be opened, if `strict`.
        """
        self.remove_others()
        copy = Path(tempfile.mkdtemp(dir=self._folder, prefix="copy-"))
        try:
            self._copy_bundles(settings, copy / "bundles", strict=strict)
            digest = _digest(copy)
            if not (self._snapshots / digest).exists():
                self._open_candidates(settings, copy / "bundles", strict=strict)
                digest = _digest(copy)
            if not (self._snapshots / digest).exists():
                copy.rename(self._snapshots / digest)
            return digest
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def remove_others(self) -> None:
        """Remove every copy except the current one, also what a killed worker has left."""
        current = self.current
        for path in (*self._snapshots.iterdir(), *self._folder.glob("copy-*")):
            if not (current and path.name == current.bundles):
                shutil.rmtree(path, ignore_errors=True)

    def _copy_bundles(self, settings: Settings, target: Path, *, strict: bool) -> None:
        left = MAX_BUNDLES_BYTES
        for path in find_bundles(settings.bundles, settings.models):
            if path.is_dir():  # else loading says so
                try:
                    left -= _copy_bundle(path, target / path.name, left)
                except OSError as error:
                    if strict:
                        raise
                    log.error("bundle skipped: %s", error)  # noqa: TRY400
                    shutil.rmtree(target / path.name, ignore_errors=True)

    def _open_candidates(self, settings: Settings, copies: Path, *, strict: bool) -> None:
        """Open the copied bundles that are not current already, and remove those that fail."""
        current = self.current
        known = self.bundles(current.bundles) if current else None
        new = [
            path
            for path in (sorted(copies.iterdir()) if copies.is_dir() else ())
            if not (known and _digest(path) == _digest(known / path.name))
        ]
        for path, reason in refuse_candidates(new).items():
            original = reason.replace(str(copies), str(settings.bundles))
            if strict:
                raise ReloadRefused(original)
            log.error("bundle skipped: %s", original)
            shutil.rmtree(path)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep other workers from making a copy, until the context or this process ends.

        Args:
            wait: wait while another worker makes a copy.

        Raises:
            LockHeld: another worker makes a copy, and `wait` is false.
        """
        with (self._folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise LockHeld from error
            yield


def _copy_bundle(source: Path, target: Path, most: int) -> int:
    """Copy a bundle's files and its samples, and return how many bytes they have.

    Links are followed within the bundle's own folder. A copy of a link to elsewhere would have
    onnxruntime read a file that it refuses to read there.

    Args:
        source: the bundle.
        target: a folder that does not exist.
        most: the bytes that the copy may have.

    Raises:
        OSError: a file cannot be read or lies outside, there are too many files or bytes, or the
            disk has no room for them.
    """
    folder, left = source.resolve(), most
    files = [
        path for part in (source, source / SAMPLES) if part.is_dir() for path in part.iterdir()
    ]
    if len(files) > MAX_BUNDLE_FILES:
        raise OSError(f"{source} has more than {MAX_BUNDLE_FILES:,} files")
    files = [path for path in files if not path.is_dir()]
    for path in files:
        _check_inside(path, path, folder)
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path} is not a regular file")
    _check_size(source, sum(path.stat().st_size for path in files), most, target)
    (target / SAMPLES).mkdir(parents=True)
    for path in files:
        left -= _copy(path, target / path.relative_to(source), left, folder)
    return most - left


def _check_size(source: Path, size: int, most: int, target: Path) -> None:
    """Check that so many bytes may be copied, and that the disk has room for them."""
    if size > most:
        raise OSError(f"with {source}, the bundles have more than {MAX_BUNDLES_BYTES:,} bytes")
    disk = next(folder for folder in target.parents if folder.exists())
    free = shutil.disk_usage(disk).free
    if size + SPARE_BYTES > free:
        reason = f"{disk} has room for {max(0, free - SPARE_BYTES):,} bytes, not for {size:,}"
        raise OSError(errno.ENOSPC, f"{source} is not copied: {reason}")


def _check_inside(path: Path, link: Path, folder: Path) -> None:
    if not Path(os.path.realpath(link)).is_relative_to(folder):  # also of a link to itself
        raise OSError(f"{path} is a link to a file outside the bundle")


def _copy(source: Path, target: Path, most: int, folder: Path) -> int:
    """Copy at most `most` bytes of a file, and return how many it has.

    Raises:
        OSError: it cannot be read, has more bytes, or is a pipe or a device.
    """
    with open_file(source) as reading, target.open("wb") as writing:
        if (opened := Path(f"/proc/self/fd/{reading.fileno()}")).exists():  # Linux
            _check_inside(source, opened, folder)  # it may have become a link meanwhile
        size, copied = os.fstat(reading.fileno()).st_size, 0
        while max(copied, size) <= most:
            if not (chunk := reading.read(_CHUNK_BYTES)):
                return copied
            copied += writing.write(chunk)
    raise OSError(f"with {source}, the bundles have more than {MAX_BUNDLES_BYTES:,} bytes")


def _digest(folder: Path) -> str:
    """Hash the names and contents of all files below a folder."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        whole.update(f"{path.relative_to(folder)}\0".encode() + content)
    return whole.hexdigest()[:_DIGEST_DIGITS]
