from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.datasets import (
    DATASETS,
    Dataset,
    DatasetError,
    Examples,
    Split,
    choose,
    hold_out,
    load,
)
from training.data.download import DownloadError, download

Serve = Callable[..., tuple[str, list[str | None]]]

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)
CONTENTS = {
    "train-images-idx3-ubyte": IMAGES,
    "train-labels-idx1-ubyte": LABELS,
    "t10k-images-idx3-ubyte": IMAGES[:2] + 100,
    "t10k-labels-idx1-ubyte": LABELS[3:],
}


def idx(array: NDArray[np.uint8]) -> bytes:
    """The array as an IDX file."""
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


FILES = {f"{name}.gz": gzip.compress(idx(array)) for name, array in CONTENTS.items()}


def tiny(*mirrors: str) -> Dataset:
    """A data set of five training and two test images."""
    md5 = {
        name: hashlib.md5(idx(array), usedforsecurity=False).hexdigest()
        for name, array in CONTENTS.items()
    }
    return Dataset("tiny", "digits", tuple("012345"), mirrors, md5)


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """The folder of the tiny data set, complete."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    return directory


def test_a_data_set_is_downloaded(serve: Serve, tmp_path: Path) -> None:
    """Images and labels come from the mirror, in the order of the files."""
    mirror, _ = serve(FILES)
    examples = load(tiny(mirror), "train", tmp_path)
    np.testing.assert_array_equal(IMAGES, examples.images)
    np.testing.assert_array_equal(LABELS, examples.labels)


@pytest.mark.parametrize(("split", "first_pixel"), [("train", 0), ("test", 100)])
def test_each_split_has_its_own_files(on_disk: Path, split: Split, first_pixel: int) -> None:
    """`train` and `test` are read from different files."""
    examples = load(tiny(), split, on_disk.parent)
    assert first_pixel == examples.images[0, 0, 0]


def test_only_the_wanted_split_is_downloaded(serve: Serve, tmp_path: Path) -> None:
    """The test split's two files are all that is fetched for it."""
    mirror, _ = serve(FILES)
    load(tiny(mirror), "test", tmp_path)
    expected = {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}
    assert expected == {path.name for path in (tmp_path / "tiny").glob("*.gz")}


def test_files_on_disk_are_not_downloaded_again(serve: Serve, on_disk: Path) -> None:
    """A data set that is there needs no server."""
    mirror, asked = serve(FILES)
    load(tiny(mirror), "train", on_disk.parent)
    assert [] == asked


def test_a_wrong_file_is_not_kept(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mirror gives is checked before it gets its name on disk."""
    without_pauses = partial(download, sleep=lambda _: None)
    monkeypatch.setattr("training.data.datasets.download", without_pauses)
    mirror, _ = serve({name: gzip.compress(b"something else") for name in FILES})
    with pytest.raises(DownloadError, match="not the published file"):
        load(tiny(mirror), "train", tmp_path)
    assert {".lock"} == {path.suffix for path in (tmp_path / "tiny").iterdir()}


def test_mirrors_may_compress_differently(serve: Serve, tmp_path: Path) -> None:
    """The digest is that of the decompressed file."""
    mirror, _ = serve({name: gzip.compress(gzip.decompress(FILES[name]), 0) for name in FILES})
    np.testing.assert_array_equal(LABELS, load(tiny(mirror), "train", tmp_path).labels)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(idx(IMAGES[::-1])), id="other images"),
        pytest.param(idx(IMAGES), id="not compressed"),
        pytest.param(FILES["train-images-idx3-ubyte.gz"][:-9], id="cut"),
        pytest.param(FILES["train-images-idx3-ubyte.gz"][:10] + b"\xff" * 40, id="damaged"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_wrong_file_on_disk_is_left_untouched(
    serve: Serve, on_disk: Path, content: bytes
) -> None:
    """A file that is not the published one is refused, and neither replaced nor removed."""
    mirror, _ = serve(FILES)
    path = on_disk / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="not the published file"):
        load(tiny(mirror), "train", on_disk.parent)
    assert content == path.read_bytes()


def test_without_fetching_a_missing_file_is_an_error(serve: Serve, tmp_path: Path) -> None:
    """`fetch=False` names the missing file."""
    mirror, _ = serve(FILES)
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz is missing"):
        load(tiny(mirror), "train", tmp_path, fetch=False)


def test_without_fetching_no_mirror_is_asked(serve: Serve, tmp_path: Path) -> None:
    """`fetch=False` stays off the network."""
    mirror, asked = serve(FILES)
    with pytest.raises(DatasetError):
        load(tiny(mirror), "train", tmp_path, fetch=False)
    assert [] == asked


def test_without_fetching_files_on_disk_are_read(on_disk: Path) -> None:
    """`fetch=False` is content with what is there."""
    np.testing.assert_array_equal(LABELS, load(tiny(), "train", on_disk.parent, fetch=False).labels)


def test_images_and_labels_must_pair_up(on_disk: Path) -> None:
    """A data set whose files disagree about their number is refused."""
    labels = idx(LABELS[:4])
    (on_disk / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    dataset = tiny()
    digest = hashlib.md5(labels, usedforsecurity=False).hexdigest()
    dataset = replace(dataset, md5={**dataset.md5, "train-labels-idx1-ubyte": digest})
    with pytest.raises(DatasetError, match="5 images but 4 labels"):
        load(dataset, "train", on_disk.parent)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_the_last_examples_are_held_out(count: int) -> None:
    """Training keeps the first examples, validation gets the last `count`, none is lost."""
    training, validation = hold_out(Examples(IMAGES, LABELS), count)
    np.testing.assert_array_equal(LABELS[: 5 - count], training.labels)
    np.testing.assert_array_equal(LABELS[5 - count :], validation.labels)
    np.testing.assert_array_equal(IMAGES[: 5 - count], training.images)
    np.testing.assert_array_equal(IMAGES[5 - count :], validation.images)


@pytest.mark.parametrize("count", [5, 6])
def test_something_is_left_to_train_on(count: int) -> None:
    """Holding out everything, or more than there is, is refused."""
    with pytest.raises(ValueError, match=f"cannot hold out {count} of 5"):
        hold_out(Examples(IMAGES, LABELS), count)


@pytest.mark.parametrize("name", DATASETS)
def test_published_data_sets_are_named_as_they_are_listed(name: str) -> None:
    """A data set's folder is called what it is asked for by."""
    assert name == DATASETS[name].name


@pytest.mark.parametrize("name", DATASETS)
def test_published_data_sets_have_the_four_files(name: str) -> None:
    """Each file that `load` reads has a digest."""
    assert CONTENTS.keys() == DATASETS[name].md5.keys()


@pytest.mark.parametrize("name", DATASETS)
def test_mirrors_end_in_a_slash(name: str) -> None:
    """A file's name can be put right behind a mirror's address."""
    assert all(mirror.endswith("/") for mirror in DATASETS[name].mirrors)


@pytest.mark.parametrize("name", DATASETS)
def test_published_data_sets_have_ten_different_classes(name: str) -> None:
    """Each label has its own name."""
    assert 10 == len(set(DATASETS[name].class_names))


def digits_of(counts: dict[int, int]) -> Examples:
    """So many images of each label; the first pixel is the image's number."""
    labels = np.repeat(list(counts), list(counts.values())).astype(np.uint8)
    images = np.zeros((len(labels), 2, 2), np.uint8)
    images[:, 0, 0] = np.arange(len(labels))
    return Examples(images, labels)


def test_chosen_examples_are_as_many_of_each_class() -> None:
    """However many there are to choose from, and none is taken twice."""
    chosen = choose(digits_of({0: 50, 1: 20, 2: 30}), 30, seed=1)
    assert [10, 10, 10] == np.bincount(chosen.labels).tolist()
    assert 30 == len(set(chosen.images[:, 0, 0].tolist()))


def test_the_seed_chooses() -> None:
    """The same ones for the same seed, others for another; fewer are among more."""
    digits = digits_of({0: 50, 1: 50})
    first, again, other, more = (
        set(choose(digits, count, seed=seed).images[:, 0, 0].tolist())
        for seed, count in ((1, 20), (1, 20), (2, 20), (1, 40))
    )
    assert first == again
    assert first != other
    assert first < more


@pytest.mark.parametrize("count", [0, 7, 42])
def test_classes_share_equally_or_not_at_all(count: int) -> None:
    """An odd count, none, or more than the rarest class has is refused."""
    with pytest.raises(ValueError, match="equally"):
        choose(digits_of({0: 50, 1: 20}), count, seed=1)
