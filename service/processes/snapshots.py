"""Copies of the bundles and keys in the service's own folder, which nobody changes."""

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

from model.bundle import MANIFEST
from model.bundle.samples import SAMPLES
from service.processes.status import replace_text
from service.settings import Settings

log = logging.getLogger(__name__)
MAX_BUNDLE_BYTES = 2_000_000_000
"""Of all files of a bundle."""
MAX_BUNDLE_FILES = 1_000
_PART_BYTES = 1_000_000
"""Of a file that is copied."""


class LockHeld(Exception):
    """Another worker makes a copy."""


class Snapshots:
    """Copies, each named by a digest of what it holds, and which of them is served."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._current = folder / "current"
        self._snapshots = folder / "snapshots"
        self._snapshots.mkdir(exist_ok=True)

    @property
    def current(self) -> str | None:
        """The digest of the copy that all workers are to serve; None before there is one."""
        try:
            return self._current.read_text()
        except FileNotFoundError:
            return None

    def bundles(self, digest: str) -> Path:
        """The folder of a copy's bundles."""
        return self._snapshots / digest / "bundles"

    def keys(self, digest: str) -> str:
        """The digests of a copy's keys."""
        return (self._snapshots / digest / "keys.json").read_text()

    def take(self, settings: Settings, keys: str, *, strict: bool = True) -> str:
        """Copy what is on disk now; the digest of the copy.

        Args:
            settings: which bundles.
            keys: the digests of keys.
            strict: whether a bundle that cannot be copied is an error; else it is left out.

        Raises:
            OSError: a bundle cannot be copied, or there is no room.
        """
        for path in self._folder.glob("copy-*"):  # of a worker that was killed
            shutil.rmtree(path)
        copy = Path(tempfile.mkdtemp(dir=self._folder, prefix="copy-"))
        (copy / "keys.json").write_text(keys)
        named = [settings.bundles / name for name in settings.models]
        manifests = settings.bundles.glob(f"[!.]*/{MANIFEST}")
        for path in named or [manifest.parent for manifest in manifests]:
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

    def use(self, digest: str) -> None:
        """Make a copy current, for all workers to serve; keep it and the one before."""
        kept = {digest, self.current}
        replace_text(self._current, digest)
        for path in self._snapshots.iterdir():
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def discard(self, digest: str) -> None:
        """Remove a copy that was refused."""
        if digest and digest != self.current:
            shutil.rmtree(self._snapshots / digest, ignore_errors=True)

    @contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Keep other workers from making a copy; the end of this process ends that too.

        Raises:
            LockHeld: another makes one, unless this is to wait.
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
    """Copy a file's content, of at most so many bytes; how many it has.

    A pipe is read when it is written.
    """
    with source.open("rb") as reading, target.open("wb") as writing:
        if (opened := Path(f"/proc/self/fd/{reading.fileno()}")).exists():  # Linux
            _check_inside(source, opened, folder)  # it may have become a link meanwhile
        status = os.fstat(reading.fileno())
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            raise OSError(f"{source} is not a file")
        copied = 0
        while max(copied, status.st_size) <= most:
            if not (part := reading.read(_PART_BYTES)):
                return copied
            copied += writing.write(part)
    raise OSError(f"{source.parent} has more than {MAX_BUNDLE_BYTES:,} bytes")


def _digest(folder: Path) -> str:
    """Of the names and contents of all files below a folder."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        whole.update(f"{path.relative_to(folder)}\0".encode() + content)
    return whole.hexdigest()[:16]
