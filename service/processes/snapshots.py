"""Copies of the bundles in the service's own folder, and which of them all workers are to serve."""

from __future__ import annotations

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

from model.bundle.samples import SAMPLES
from service.inference.bundles import find_bundles
from service.processes.registry import replace_text
from service.settings import Settings

log = logging.getLogger(__name__)
MAX_BUNDLE_BYTES = 2_000_000_000
"""The files of one bundle may hold this many bytes together."""
MAX_BUNDLE_FILES = 1_000
_CHUNK_BYTES = 1_000_000
"""A file is copied in chunks of this many bytes."""
_DIGEST_DIGITS = 16


class LockHeld(Exception):
    """Another worker is making a copy."""


class Revision(NamedTuple):
    """Bundles and keys that workers serve together."""

    bundles: str
    """The digest that names a copy of the bundles."""
    keys: str
    """The digests of the API keys, as `Access.dump` gives them."""

    @property
    def digest(self) -> str:
        """A digest of both."""
        return hashlib.sha256("\n".join(self).encode()).hexdigest()[:_DIGEST_DIGITS]


class Snapshots:
    """Copies of the bundles, each named by a digest of its content, and the current one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current = folder / "current"
        self._snapshots = folder / "snapshots"
        self._snapshots.mkdir(exist_ok=True)

    @property
    def current(self) -> Revision | None:
        """The revision that all workers are to serve; None before the first `make_current`."""
        try:
            return Revision(*self._current.read_text().split("\n"))
        except FileNotFoundError:
            return None

    def bundles(self, digest: str) -> Path:
        """The folder of a copy's bundles."""
        return self._snapshots / digest / "bundles"

    def take(self, settings: Settings, *, strict: bool = True) -> str:
        """Copy the bundles on disk, and return the digest of the copy.

        Args:
            settings: name the folder and the bundles.
            strict: raise if a bundle cannot be copied; otherwise log it and leave it out.

        Raises:
            OSError: a bundle cannot be copied, or the disk is full.
        """
        for path in self._folder.glob("copy-*"):  # of a worker that was killed
            shutil.rmtree(path)
        copy = Path(tempfile.mkdtemp(dir=self._folder, prefix="copy-"))
        for path in find_bundles(settings.bundles, settings.models):
            if path.is_dir():  # else loading says so
                try:
                    _copy_bundle(path, copy / "bundles" / path.name)
                except OSError as error:
                    if strict:
                        raise
                    log.error("bundle skipped: %s", error)  # noqa: TRY400
                    shutil.rmtree(copy / "bundles" / path.name, ignore_errors=True)
        digest = _digest(copy)
        if (self._snapshots / digest).exists():
            shutil.rmtree(copy)
        else:
            copy.rename(self._snapshots / digest)
        return digest

    def make_current(self, revision: Revision) -> None:
        """Have all workers serve this; keep its copy and the one before it, remove the others."""
        before = self.current
        replace_text(self._current, "\n".join(revision))
        if before and before.bundles == revision.bundles:
            return
        kept = {revision.bundles, before and before.bundles}
        for path in self._snapshots.iterdir():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def discard(self, digest: str) -> None:
        """Remove a copy that was refused, unless it is the current one."""
        current = self.current
        if digest and not (current and current.bundles == digest):
            shutil.rmtree(self._snapshots / digest, ignore_errors=True)

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


def _copy_bundle(source: Path, target: Path) -> None:
    """Copy a bundle's files and its samples; links are followed within the bundle's own folder.

    A copy of a link to elsewhere would have onnxruntime read a file that it refuses to read there.

    Raises:
        OSError: a file cannot be read or lies outside, or there are too many files or bytes.
    """
    folder, left = source.resolve(), MAX_BUNDLE_BYTES
    files = [
        path for part in (source, source / SAMPLES) if part.is_dir() for path in part.iterdir()
    ]
    if len(files) > MAX_BUNDLE_FILES:
        raise OSError(f"{source} has more than {MAX_BUNDLE_FILES:,} files")
    (target / SAMPLES).mkdir(parents=True)
    for path in files:
        if path.is_dir():
            continue
        _check_inside(path, path, folder)
        left -= _copy(path, target / path.relative_to(source), left, folder)


def _check_inside(path: Path, link: Path, folder: Path) -> None:
    if not Path(os.path.realpath(link)).is_relative_to(folder):  # also of a link to itself
        raise OSError(f"{path} is a link to a file outside the bundle")


def _copy(source: Path, target: Path, most: int, folder: Path) -> int:
    """Copy at most `most` bytes of a file, and return how many it has.

    A pipe is read when somebody writes to it.
    """
    with source.open("rb") as reading, target.open("wb") as writing:
        if (opened := Path(f"/proc/self/fd/{reading.fileno()}")).exists():  # Linux
            _check_inside(source, opened, folder)  # it may have become a link meanwhile
        status = os.fstat(reading.fileno())
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            raise OSError(f"{source} is not a file")
        copied = 0
        while max(copied, status.st_size) <= most:
            if not (chunk := reading.read(_CHUNK_BYTES)):
                return copied
            copied += writing.write(chunk)
    raise OSError(f"{source.parent} has more than {MAX_BUNDLE_BYTES:,} bytes")


def _digest(folder: Path) -> str:
    """Hash the names and contents of all files below a folder."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        whole.update(f"{path.relative_to(folder)}\0".encode() + content)
    return whole.hexdigest()[:_DIGEST_DIGITS]
