from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.formats import read_cifar, read_idx
from training.data.source import DatasetError, DataSplit, DownloadError, File, Source, download

Serve = Callable[..., tuple[str, list[str | None]]]

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def idx(array: NDArray[np.uint8]) -> bytes:
    """The array as an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


CONTENTS = {
    "train-images-idx3-ubyte": idx(IMAGES),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(IMAGES[:2] + 100),
    "t10k-labels-idx1-ubyte": idx(LABELS[3:]),
}
FILES = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}


def digits(*mirrors: str) -> Source:
    """Five training and two test images in single files."""
    files = [
        File(name, struct.unpack_from(">I", content, 4)[0], md5(content))
        for name, content in CONTENTS.items()
    ]
    return Source(
        files={"train": tuple(files[:2]), "test": tuple(files[2:])}, read=read_idx, mirrors=mirrors
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


def test_files_are_downloaded(serve: Serve, tmp_path: Path) -> None:
    """Images and labels come from the mirror, in the order of the files."""
    mirror, _ = serve(FILES)
    columns = digits(mirror).columns("train", tmp_path, fetch=True)
    np.testing.assert_array_equal(IMAGES[:, None], columns["images"])
    np.testing.assert_array_equal(LABELS, columns["labels"])


@pytest.mark.parametrize(("split", "first_pixel"), [("train", 0), ("test", 100)])
def test_each_split_has_its_own_files(on_disk: Path, split: DataSplit, first_pixel: int) -> None:
    """`train` and `test` are read from different files."""
    columns = digits().columns(split, on_disk, fetch=False)
    assert first_pixel == columns["images"][0, 0, 0, 0]


def test_only_the_wanted_split_is_downloaded(serve: Serve, tmp_path: Path) -> None:
    """The test split's two files are all that is fetched for it."""
    mirror, _ = serve(FILES)
    digits(mirror).columns("test", tmp_path, fetch=True)
    expected = {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}
    assert expected == {path.name for path in tmp_path.glob("*.gz")}


def test_files_on_disk_are_not_downloaded_again(serve: Serve, on_disk: Path) -> None:
    """A data set that is there needs no server."""
    mirror, asked = serve(FILES)
    labels(digits(mirror), on_disk)
    assert [] == asked


def test_files_on_disk_need_not_be_compressed(on_disk: Path) -> None:
    """A file under its own name is as good."""
    (on_disk / "train-labels-idx1-ubyte.gz").unlink()
    (on_disk / "train-labels-idx1-ubyte").write_bytes(CONTENTS["train-labels-idx1-ubyte"])
    assert LABELS.tolist() == labels(digits(), on_disk)


def test_mirrors_need_not_compress(serve: Serve, tmp_path: Path) -> None:
    """Where published files are not compressed, they are kept as they come."""
    mirror, _ = serve(CONTENTS)
    assert LABELS.tolist() == labels(replace(digits(mirror), suffix=""), tmp_path)
    assert (tmp_path / "train-labels-idx1-ubyte").exists()


def test_a_wrong_file_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    """What a mirror gives is checked before it gets its name on disk."""
    mirror, _ = serve({name: gzip.compress(b"something else") for name in FILES})
    with pytest.raises(DownloadError, match="not the published file"):
        labels(digits(mirror), tmp_path)
    assert {".lock"} == {path.suffix for path in tmp_path.iterdir()}


def test_mirrors_may_compress_differently(serve: Serve, tmp_path: Path) -> None:
    """The digest is that of the decompressed file."""
    mirror, _ = serve({f"{name}.gz": gzip.compress(CONTENTS[name], 0) for name in CONTENTS})
    assert LABELS.tolist() == labels(digits(mirror), tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(gzip.compress(idx(IMAGES[::-1])), "MD5 differs", id="other images"),
        pytest.param(idx(IMAGES), "cannot be decompressed", id="not compressed"),
        pytest.param(FILES["train-images-idx3-ubyte.gz"][:-9], "decompressed", id="cut"),
        pytest.param(
            FILES["train-images-idx3-ubyte.gz"][:10] + b"\xff" * 40, "decompressed", id="damaged"
        ),
        pytest.param(b"", "MD5 differs", id="empty"),
    ],
)
def test_a_wrong_file_on_disk_is_left_untouched(
    serve: Serve, on_disk: Path, content: bytes, reason: str
) -> None:
    """A file that is not the published one is refused, and neither replaced nor removed."""
    mirror, _ = serve(FILES)
    path = on_disk / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=rf"not the published file \(.*{reason}"):
        labels(digits(mirror), on_disk)
    assert content == path.read_bytes()


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_missing_file_is_named(serve: Serve, tmp_path: Path, *, mirrored: bool) -> None:
    """Without mirrors, or with `fetch=False`, which asks none."""
    mirror, asked = serve(FILES)
    source = digits(mirror) if mirrored else digits()
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz is missing"):
        labels(source, tmp_path, fetch=not mirrored)
    assert [] == asked


def without_digests(count: int) -> Source:
    """The labels alone, so many of them, as nobody has published them."""
    files = (File("train-labels-idx1-ubyte", count),)
    return replace(digits(), files={"train": files})


def test_without_a_digest_the_structure_is_checked(on_disk: Path) -> None:
    """A file of the right format and number will do."""
    assert LABELS.tolist() == labels(without_digests(5), on_disk)
    with pytest.raises(DatasetError, match="holds 5 labels, not 6"):
        labels(without_digests(6), on_disk)


RECORDS = {
    f"batch_{n}.bin": b"".join(bytes([n + k]) + bytes([n]) * 3072 for k in range(2))
    for n in range(3)
}
"""Three files of two of CIFAR-10's records."""


def tar(contents: dict[str, bytes]) -> bytes:
    """A gzip-compressed tar file with the files in a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        folder = tarfile.TarInfo("batches")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in contents.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = tar({"readme.html": b"Hello", **RECORDS})


def batches(*mirrors: str, archive: bytes = ARCHIVE) -> Source:
    """Two training files and a test file in an archive."""
    files = [File(name, 2) for name in RECORDS]
    return Source(
        files={"train": tuple(files[:2]), "test": tuple(files[2:])},
        read=read_cifar,
        mirrors=mirrors,
        archive="all.tar.gz",
        archive_md5=md5(archive),
    )


def test_an_archive_is_downloaded_once(serve: Serve, tmp_path: Path) -> None:
    """Both splits are read from it."""
    mirror, asked = serve({"all.tar.gz": ARCHIVE})
    source = batches(mirror)
    assert [0, 1, 1, 2] == labels(source, tmp_path)
    assert [2, 3] == source.columns("test", tmp_path, fetch=False)["labels"].tolist()
    assert 1 == len(asked)


@pytest.mark.parametrize("compressed", [True, False])
def test_members_on_disk_need_no_archive(serve: Serve, tmp_path: Path, *, compressed: bool) -> None:
    """Those of the wanted split are enough, whatever the order of their records."""
    mirror, asked = serve({"all.tar.gz": ARCHIVE})
    for name in ("batch_0.bin", "batch_1.bin"):
        content = RECORDS[name][3073:] + RECORDS[name][:3073]
        path = tmp_path / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    assert [1, 0, 2, 1] == labels(batches(mirror), tmp_path)
    assert [] == asked


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(RECORDS["batch_0.bin"][:-1], "no whole number", id="cut"),
        pytest.param(RECORDS["batch_0.bin"] * 2, "holds 4 images, not 2", id="too long"),
        pytest.param(b"\x0a" * 6146, "label 10", id="labels"),
    ],
)
def test_members_on_disk_are_checked(tmp_path: Path, content: bytes, message: str) -> None:
    """By their structure, as they have no digests."""
    for name, good in RECORDS.items():
        (tmp_path / name).write_bytes(good)
    (tmp_path / "batch_0.bin").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"batch_0\.bin .*{message}"):
        labels(batches(), tmp_path)


def test_a_wrong_archive_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    """Its digest is that of the compressed file."""
    mirror, _ = serve({"all.tar.gz": tar(RECORDS)})
    with pytest.raises(DownloadError, match="not the published file"):
        labels(batches(mirror), tmp_path)
    assert not (tmp_path / "all.tar.gz").exists()


def test_a_wrong_archive_on_disk_is_left_untouched(serve: Serve, tmp_path: Path) -> None:
    """It is refused, and not downloaded again."""
    mirror, asked = serve({"all.tar.gz": ARCHIVE})
    (tmp_path / "all.tar.gz").write_bytes(b"mine")
    with pytest.raises(DatasetError, match=r"all\.tar\.gz is not the published file"):
        labels(batches(mirror), tmp_path)
    assert (b"mine", []) == ((tmp_path / "all.tar.gz").read_bytes(), asked)


def test_an_archive_without_a_file_is_refused(tmp_path: Path) -> None:
    """The message names the file."""
    archive = tar({"batch_0.bin": RECORDS["batch_0.bin"]})
    (tmp_path / "all.tar.gz").write_bytes(archive)
    with pytest.raises(DatasetError, match=r"batch_1\.bin"):
        labels(batches(archive=archive), tmp_path)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    """Where some members are there and others are not."""
    (tmp_path / "batch_0.bin").write_bytes(RECORDS["batch_0.bin"])
    with pytest.raises(DatasetError, match=r"all\.tar\.gz is missing"):
        labels(batches(), tmp_path, fetch=False)
