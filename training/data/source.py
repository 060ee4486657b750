"""Find or download a data set's files, check and read them."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Protocol

import numpy as np
from filelock import FileLock
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from training.data.formats import Columns

DataSplit = Literal["train", "test"]
_CHUNK_BYTES = 1 << 16
_PARTIAL_CONTENT = 206
_RANGE_NOT_SATISFIABLE = 416
_PERMANENT = range(400, 500)
_BAR = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())


class DatasetError(Exception):
    """A data set is missing, or is not the published one."""


class DownloadError(Exception):
    """No mirror has the file. The message names each address and its error."""


class File(NamedTuple):
    """A published file, named as when it is decompressed."""

    name: str
    records: int
    """The number of examples in the file, or of which it holds a property."""
    md5: str = ""
    """The MD5 of the *decompressed* file, as mirrors compress differently.

    Without it, only the number of records and their structure are checked.
    """


class ExampleSource(Protocol):
    """Where the examples of a data set come from."""

    @property
    def splits(self) -> Collection[DataSplit]:
        """The splits that can be read."""

    def columns(self, split: DataSplit, directory: Path, *, fetch: bool) -> Columns:
        """Read all columns of a split from `directory`; get them first if they are not there.

        Raises:
            DatasetError: they are not there and `fetch` is False, or cannot be read.
        """


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of a data set, their mirrors, and the function that reads them."""

    files: Mapping[DataSplit, tuple[File, ...]]
    read: Callable[[bytes], Columns]
    """A function that reads a file's columns, and raises ValueError where the structure is wrong.
    """
    mirrors: tuple[str, ...] = ()
    """The base addresses of mirrors, tried in order. Each ends in a slash."""
    suffix: str = ".gz"
    """The suffix of the files at the mirrors."""
    archive: str = ""
    """The gzip-compressed tar file of all files, where mirrors have it in place of the files."""
    archive_md5: str = ""
    """The MD5 of the archive as it is downloaded."""

    @property
    def splits(self) -> Collection[DataSplit]:
        """The splits that have files."""
        return self.files.keys()

    def columns(self, split: DataSplit, directory: Path, *, fetch: bool) -> Columns:
        """Read all columns of a split from `directory`, and download missing files from mirrors.

        A file may be there as it is or gzip-compressed (`.gz`); it is never overwritten.

        Raises:
            DatasetError: a file is missing or not the published one.
            DownloadError: no mirror gave the file.
        """
        files = self.files[split]
        if self.archive and not all(_on_disk(directory, file) for file in files):
            parts = self._from_archive(files, directory / self.archive, fetch=fetch)
        else:
            parts = [self._from_file(file, directory, fetch=fetch) for file in files]
        names = {name for part in parts for name in part}
        return {
            name: np.concatenate([part[name] for part in parts if name in part]) for name in names
        }

    def _from_file(self, file: File, directory: Path, *, fetch: bool) -> Columns:
        path = _on_disk(directory, file) or directory / f"{file.name}{self.suffix}"

        def is_published(content: bytes) -> bool:
            try:
                self._parse(file, _decompress(path, content))
            except ValueError:
                return False
            return True

        self._get(path, is_published, fetch=fetch)
        try:
            return self._parse(file, _decompress(path, path.read_bytes()))
        except ValueError as error:
            raise _not_published(path, error) from error

    def _from_archive(self, files: tuple[File, ...], path: Path, *, fetch: bool) -> list[Columns]:
        self._get(path, lambda content: _md5(content) == self.archive_md5, fetch=fetch)
        content = path.read_bytes()
        if _md5(content) != self.archive_md5:
            raise _not_published(path, "its MD5 differs")
        members = _members(content)
        try:
            return [self._parse(file, members[file.name]) for file in files]
        except (KeyError, ValueError) as error:
            raise _not_published(path, error) from error

    def _get(self, path: Path, verify: Callable[[bytes], bool], *, fetch: bool) -> None:
        """Download a file that is not there yet."""
        if path.exists():
            return
        if not (fetch and self.mirrors):
            raise DatasetError(f"{path} is missing")
        download([f"{mirror}{path.name}" for mirror in self.mirrors], path, verify=verify)

    def _parse(self, file: File, content: bytes) -> Columns:
        """The columns of a decompressed file; ValueError where it is not the published one."""
        if file.md5 and _md5(content) != file.md5:
            raise ValueError("its MD5 differs")
        columns = self.read(content)
        for name, column in columns.items():
            if len(column) != file.records:
                raise ValueError(f"it holds {len(column)} {name}, not {file.records}")
        return columns


def _on_disk(directory: Path, file: File) -> Path | None:
    """The path of the file, compressed or not, if it is there."""
    paths = (directory / f"{file.name}.gz", directory / file.name)
    return next((path for path in paths if path.exists()), None)


def _decompress(path: Path, content: bytes) -> bytes:
    """The content of a file, which is compressed if its name says so."""
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError("it cannot be decompressed") from error


def _members(archive: bytes) -> dict[str, bytes]:
    """The files in a tar file, by name without folders."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        files = ((PurePosixPath(member.name).name, tar.extractfile(member)) for member in tar)
        return {name: file.read() for name, file in files if file}


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _not_published(path: Path, reason: object) -> DatasetError:
    return DatasetError(
        f"{path} is not the published file ({reason}); move it away to download it again"
    )


def download(
    urls: Sequence[str],
    target: Path,
    *,
    verify: Callable[[bytes], bool],
    attempts: int = 4,
    timeout_s: float = 30,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write the first address's file that passes `verify` to `target`, which is not there yet.

    An interrupted transfer continues where it stopped (in `target` + `.part`), also in a later
    run. `target` appears only whole and verified. Of several processes that want it one fetches it,
    and the others wait; an empty `target` + `.lock` stays.

    Args:
        urls: mirrors of the same file, tried in order.
        attempts: tries per mirror, with doubling pauses between them.
        timeout_s: how long a mirror may stay silent.

    Raises:
        DownloadError: every mirror failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return
        part, failures = target.with_name(f"{target.name}.part"), []
        for url in urls:
            for attempt in range(attempts):
                if attempt:
                    sleep(2.0 ** (attempt - 1))
                try:
                    _transfer(url, part, timeout_s=timeout_s)
                    if verify(part.read_bytes()):
                        part.replace(target)
                        return
                    part.unlink()
                    failures.append(f"{url}: not the published file")
                except urllib.error.HTTPError as error:
                    failures.append(f"{url}: HTTP {error.code} {error.reason}")
                    if error.code in _PERMANENT:
                        break
                except (OSError, http.client.HTTPException) as error:
                    failures.append(f"{url}: {error or type(error).__name__}")
    raise DownloadError(f"could not download {target.name}:\n  " + "\n  ".join(failures))


def _transfer(url: str, part: Path, *, timeout_s: float) -> None:
    """Append to `part` what is missing of `url`."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url)  # noqa: S310  the mirrors are ours to name
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310
    except urllib.error.HTTPError as error:
        if have and error.code == _RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the caller's check decides
        raise
    with response, Progress(*_BAR) as progress:
        resumed = response.status == _PARTIAL_CONTENT
        remaining = response.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(remaining) if remaining else None
        bar = progress.add_task(part.stem, total=total, completed=start)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                progress.advance(bar, len(chunk))
            if total is not None and file.tell() < total:
                raise http.client.IncompleteRead(b"", total - file.tell())
