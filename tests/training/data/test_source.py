"""Files of published data sets: their formats, on disk and from a mirror that a test runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.source import (
    DatasetError,
    DownloadError,
    File,
    Source,
    download,
    read_cifar,
    read_idx,
)

Serve = Callable[..., tuple[str, list[str | None]]]

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def idx(array: NDArray[np.uint8]) -> bytes:
    """The array as an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def records(*labels: int) -> bytes:
    """Records of CIFAR-10's binary version; a red plane of the label, green of 1, blue of 2."""
    planes = bytes([1]) * 1024 + bytes([2]) * 1024
    return b"".join(bytes([label]) + bytes([label]) * 1024 + planes for label in labels)


CONTENTS = {
    "train-images": idx(IMAGES),
    "train-labels": idx(LABELS),
    "test-images": idx(IMAGES[:2] + 100),
    "test-labels": idx(LABELS[3:]),
}
FILES = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
BATCHES = {"batch_0.bin": records(0, 1), "batch_1.bin": records(1, 2), "test.bin": records(2, 3)}


def digits(*mirrors: str) -> Source:
    """Five training and two test images in single files."""
    files = [
        File(name, struct.unpack_from(">I", content, 4)[0], md5(content))
        for name, content in CONTENTS.items()
    ]
    return Source(
        files={"train": tuple(files[:2]), "test": tuple(files[2:])}, read=read_idx, mirrors=mirrors
    )


def tar(contents: dict[str, bytes]) -> bytes:
    """A gzip-compressed tar file with the files in a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = tar({"readme.html": b"Hello", **BATCHES})


def batches(*mirrors: str, archive: bytes = ARCHIVE) -> Source:
    """Two training files and a test file in an archive."""
    files = [File(name, 2) for name in BATCHES]
    return Source(
        files={"train": tuple(files[:2]), "test": tuple(files[2:])},
        read=read_cifar,
        mirrors=mirrors,
        archive="all.tar.gz",
        archive_md5=md5(archive),
    )


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """The folder of the digits, complete."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further attempts come at once."""
    monkeypatch.setattr("training.data.source.download", partial(download, sleep=lambda _: None))


def labels(source: Source, directory: Path, *, fetch: bool = True) -> list[int]:
    """The labels of the training split."""
    labels: list[int] = source.columns("train", directory, fetch=fetch)["labels"].tolist()
    return labels


def test_the_files_of_a_split_are_downloaded(serve: Serve, tmp_path: Path) -> None:
    """No others; what is there then is not asked for again."""
    mirror, asked = serve(FILES)
    for _ in range(2):
        columns = digits(mirror).columns("train", tmp_path, fetch=True)
        np.testing.assert_array_equal(IMAGES[:, None], columns["images"])
        np.testing.assert_array_equal(LABELS, columns["labels"])
    assert {"train-images.gz", "train-labels.gz"} == {path.name for path in tmp_path.glob("*.gz")}
    assert 2 == len(asked)


def test_files_on_disk_need_no_server_and_no_compression(on_disk: Path) -> None:
    """A file under its own name is as good; each split has its own files."""
    (on_disk / "train-labels.gz").unlink()
    (on_disk / "train-labels").write_bytes(CONTENTS["train-labels"])
    assert LABELS.tolist() == labels(digits(), on_disk)
    assert 100 == digits().columns("test", on_disk, fetch=False)["images"][0, 0, 0, 0]


def test_a_wrong_file_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    """A mirror's content is checked, decompressed, before it gets its name on disk."""
    mirror, _ = serve({name: gzip.compress(b"something else") for name in FILES})
    with pytest.raises(DownloadError, match="not the published file"):
        labels(digits(mirror), tmp_path)
    assert {".lock"} == {path.suffix for path in tmp_path.iterdir()}
    other, _ = serve({f"{name}.gz": gzip.compress(CONTENTS[name], 0) for name in CONTENTS})
    assert LABELS.tolist() == labels(digits(other), tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(gzip.compress(idx(IMAGES[::-1])), "MD5 differs", id="other images"),
        pytest.param(FILES["train-images.gz"][:-9], "decompressed", id="cut"),
        pytest.param(b"", "MD5 differs", id="empty"),
    ],
)
def test_a_wrong_file_on_disk_is_left_untouched(
    serve: Serve, on_disk: Path, content: bytes, reason: str
) -> None:
    """It is refused, and neither replaced nor removed."""
    mirror, _ = serve(FILES)
    path = on_disk / "train-images.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"not the published file \(.*{reason}"):
        labels(digits(mirror), on_disk)
    assert content == path.read_bytes()


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_missing_file_is_named(serve: Serve, tmp_path: Path, *, mirrored: bool) -> None:
    """Without mirrors, or with `fetch=False`, which asks none; and where it could be."""
    mirror, asked = serve(FILES)
    source = digits(mirror) if mirrored else digits()
    with pytest.raises(DatasetError, match=r"train-images\.gz is missing; CAPSNET_DATA_DIR"):
        labels(source, tmp_path, fetch=not mirrored)
    assert [] == asked


def test_an_archive_is_downloaded_once(serve: Serve, tmp_path: Path) -> None:
    """Both splits are read from it."""
    mirror, asked = serve({"all.tar.gz": ARCHIVE})
    source = batches(mirror)
    assert [0, 1, 1, 2] == labels(source, tmp_path)
    assert [2, 3] == source.columns("test", tmp_path, fetch=False)["labels"].tolist()
    assert 1 == len(asked)


@pytest.mark.parametrize("compressed", [True, False])
def test_members_on_disk_need_no_archive(tmp_path: Path, *, compressed: bool) -> None:
    """Those of the wanted split are enough, whatever the order of their records."""
    for name, content in (("batch_0.bin", records(1, 0)), ("batch_1.bin", records(2, 1))):
        path = tmp_path / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    assert [1, 0, 2, 1] == labels(batches(), tmp_path)
    (tmp_path / path.name).unlink()
    with pytest.raises(DatasetError, match=r"all\.tar\.gz is missing"):
        labels(batches(), tmp_path)


@pytest.mark.parametrize("archive", [b"mine", tar({"batch_0.bin": BATCHES["batch_0.bin"]})])
def test_a_wrong_archive_is_refused(serve: Serve, tmp_path: Path, archive: bytes) -> None:
    """From a mirror it is not kept; on disk it stays as it is. Its MD5 is the compressed one's."""
    mirror, asked = serve({"all.tar.gz": archive})
    with pytest.raises(DownloadError, match="not the published file"):
        labels(batches(mirror), tmp_path)
    asked.clear()
    (tmp_path / "all.tar.gz").write_bytes(archive)
    with pytest.raises(DatasetError, match=r"all\.tar\.gz is not the published file"):
        labels(batches(mirror), tmp_path)
    assert (archive, []) == ((tmp_path / "all.tar.gz").read_bytes(), asked)
    with pytest.raises(DatasetError, match="not the published file"):
        labels(batches(archive=tar({})), tmp_path)
