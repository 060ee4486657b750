"""Files of published data sets: found on disk or downloaded, checked and read.

torchvision is not used, see decision 29 in docs/adr/model.md.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import shutil
import tarfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from rich.progress import wrap_file

from model.bundle.disk import replacing

DataSplit = Literal["train", "test"]
Columns = dict[str, NDArray[Any]]
"""What a file holds: `images` (N, C, H, W) uint8, `labels` (N,) int64, or other fields of
`training.data.datasets.Examples`."""
_ROUNDS, _TIMEOUT_S = 4, 30.0
"""How often all mirrors are asked, and how long one may stay silent."""
_T = TypeVar("_T")


class DatasetError(Exception):
    """A data set is missing, cannot be downloaded, or is not the published one."""


class File(NamedTuple):
    """A published file, named as when it is decompressed."""

    name: str
    records: int
    """The number of its images or labels."""
    md5: str = ""
    """The MD5 of the *decompressed* file, as mirrors compress differently.

    Without it, only the number of records and their structure are checked.
    """


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of a data set, their mirrors, and the function that reads them."""

    files: Mapping[DataSplit, Sequence[File]]
    read: Callable[[bytes], Columns]
    """Reads a file's columns, and raises ValueError where the structure is wrong."""
    mirrors: tuple[str, ...] = ()
    """The base addresses of mirrors, tried in order. Each ends in a slash."""
    archive: str = ""
    """The gzip-compressed tar file of all files, where mirrors have it in place of the files."""
    archive_md5: str = ""
    """The MD5 of the archive as it is downloaded."""

    def columns(self, split: DataSplit, directory: Path, *, fetch: bool) -> Columns:
        """Read the images and labels of a split, and download files that are not there.

        A file may be there as it is or gzip-compressed (`.gz`); it is never overwritten.

        Raises:
            DatasetError: a file is missing or not the published one, or no mirror gave it.
        """
        files = self.files[split]
        paths = [_on_disk(directory, file) for file in files]
        if self.archive and not all(path.exists() for path in paths):
            unpack = partial(self._unpack, files)
            parts = self._load(directory / self.archive, unpack, fetch=fetch)
        else:
            parts = [
                self._load(path, partial(self._parse, file), fetch=fetch)
                for file, path in zip(files, paths, strict=True)
            ]
        return {
            name: np.concatenate([part[name] for part in parts if name in part])
            for name in ("images", "labels")
        }

    def _load(self, path: Path, parse: Callable[[bytes], _T], *, fetch: bool) -> _T:
        """Parse a file, after downloading it if it is not there."""
        if not path.exists():
            if not (fetch and self.mirrors):
                raise DatasetError(f"{path} is missing; CAPSNET_DATA_DIR names the folder of data")
            download([f"{mirror}{path.name}" for mirror in self.mirrors], path, check=parse)
        try:
            return parse(path.read_bytes())
        except ValueError as error:
            raise DatasetError(
                f"{path} is not the published file ({error}); move it away to download it again"
            ) from error

    def _parse(self, file: File, content: bytes) -> Columns:
        """The columns of a file's content. ValueError where it is not the published one."""
        if content.startswith(b"\x1f\x8b"):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise ValueError("it cannot be decompressed") from error
        _check_md5(content, file.md5)
        columns = self.read(content)
        for name, column in columns.items():
            if len(column) != file.records:
                raise ValueError(f"it holds {len(column)} {name}, not {file.records}")
        return columns

    def _unpack(self, files: Sequence[File], content: bytes) -> list[Columns]:
        """The columns of files in an archive. ValueError where it is not the published one."""
        _check_md5(content, self.archive_md5)
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            inner = ((PurePosixPath(member.name).name, tar.extractfile(member)) for member in tar)
            members = {name: file.read() for name, file in inner if file}
        return [self._parse(file, members.get(file.name, b"")) for file in files]


def read_idx(content: bytes) -> Columns:
    """Read MNIST's format: images of one channel, or labels, in one file.

    Raises:
        ValueError: not an IDX file of bytes, or not as long as its header says.
    """
    if content[:3] != b"\0\0\x08":
        raise ValueError("not an IDX file of unsigned bytes")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    array = np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
    return {"labels": array.astype(np.int64)} if axes == 1 else {"images": array[:, None]}


def read_cifar(content: bytes) -> Columns:
    """Read CIFAR-10's binary version: a label byte, then 32x32 bytes each of red, green and blue.

    Raises:
        ValueError: the file does not consist of whole records.
    """
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = records[:, 1:].reshape(-1, 3, 32, 32)
    return {"images": images, "labels": records[:, 0].astype(np.int64)}


def download(
    urls: Sequence[str], target: Path, *, check: Callable[[bytes], object], pause_s: float = 0.5
) -> None:
    """Write the first address's file that passes `check` to `target`, which is not there yet.

    `target` appears only whole and checked. Of several processes that want it one fetches it, and
    the others wait; an empty `target` + `.lock` stays.

    Args:
        urls: mirrors of the same file, tried in order.
        check: raises ValueError if a content is not the file's.
        pause_s: the time before all mirrors are asked again, which grows each time.

    Raises:
        DatasetError: every mirror failed. The message names each address and its error.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return
        for attempt, url in product(range(_ROUNDS), urls):
            if url == urls[0]:
                time.sleep(attempt * pause_s)
            try:
                content = _transfer(url, target.name)
                check(content)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{url}: {error or type(error).__name__}")
            except ValueError as error:
                failures.append(f"{url}: not the published file ({error})")
            else:
                with replacing(target) as file:
                    file.write(content)
                return
    listed = "\n  ".join(dict.fromkeys(failures))
    raise DatasetError(
        f"could not download {target.name}:\n  {listed}\n"
        f"Put the file into {target.parent}, or name a folder of data sets that has it with "
        "CAPSNET_DATA_DIR or --data-dir"
    )


def _transfer(url: str, name: str) -> bytes:
    """The content of an address; the progress is shown."""
    content = io.BytesIO()
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310  ours to name
        size = int(response.headers.get("Content-Length", 0))
        with wrap_file(response, size, description=name) as file:
            shutil.copyfileobj(file, content)
    return content.getvalue()


def _on_disk(directory: Path, file: File) -> Path:
    """The path of the file, as it is or compressed; the one to download if neither is there."""
    plain = directory / file.name
    return plain if plain.exists() else directory / f"{file.name}.gz"


def _check_md5(content: bytes, expected: str) -> None:
    if expected and hashlib.md5(content, usedforsecurity=False).hexdigest() != expected:
        raise ValueError("its MD5 differs")
