from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from training.data.datasets import (
    DATASETS,
    NOVELTY_DATASETS,
    Dataset,
    Examples,
    load,
    split_last,
)
from training.data.source import DatasetError, DataSplit, File, Source

DOWNLOADED = [name for name, one in DATASETS.items() if isinstance(one.source, Source)]
ALL = {**{name: DATASETS[name] for name in DOWNLOADED}, **NOVELTY_DATASETS}

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 1, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5])
TOYS = Dataset(
    name="toys",
    kind="toys",
    image_shape=(1, 1, 2),
    class_names=("ball", "car"),
    preprocess="crop",
    held_out_count=2,
    source=Source(
        files={"train": (File("images", 4), File("labels", 4))},
        read=lambda content: {
            b"i": {"images": np.arange(8, dtype=np.uint8).reshape(4, 1, 1, 2)},
            b"l": {"labels": np.array([0, 1, 0, 1])},
            b"x": {"labels": np.array([0, 1, 2, 1])},
        }[content],
    ),
)
"""Files of one letter, which stands for what they hold."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """All files of the toys."""
    (tmp_path / "toys").mkdir()
    for name in ("images", "labels"):
        (tmp_path / "toys" / name).write_text(name[0])
    return tmp_path


def test_a_split_is_images_and_labels(data_dir: Path) -> None:
    """In the order of the files."""
    examples = load(TOYS, "train", data_dir)
    assert [0, 2, 4, 6] == examples.images[:, 0, 0, 0].tolist()
    assert [0, 1, 0, 1] == examples.labels.tolist()


@pytest.mark.parametrize(
    ("dataset", "split", "message"),
    [
        pytest.param(TOYS, "test", "toys has no test split", id="a missing split"),
        pytest.param(replace(TOYS, source=None), "train", "toys has no train split", id="no files"),
        pytest.param(
            replace(TOYS, image_shape=(3, 1, 2)),
            "train",
            r"images are \(1, 1, 2\), not \(3, 1, 2\)",
            id="images of another size",
        ),
    ],
)
def test_what_is_not_there_is_an_error(
    dataset: Dataset, split: DataSplit, message: str, data_dir: Path
) -> None:
    """The message names the data set and the split, or both shapes."""
    with pytest.raises(DatasetError, match=message):
        load(dataset, split, data_dir)


@pytest.mark.parametrize("name", DOWNLOADED)
def test_what_is_downloaded_is_checked(name: str) -> None:
    """Each file has a digest, or comes in an archive that has one."""
    source = DATASETS[name].source
    assert isinstance(source, Source)
    assert {"train", "test"} == source.files.keys()
    files = [file for split in source.files.values() for file in split]
    assert source.archive_md5 or all(file.md5 for file in files)


REAL: list[tuple[str, DataSplit, int, list[float]]] = [
    ("mnist", "train", 60_000, [0.1307]),
    ("fashion-mnist", "train", 60_000, [0.2860]),
    ("cifar-10", "train", 50_000, [0.4914, 0.4822, 0.4465]),
    ("kmnist-test", "test", 10_000, [0.1846]),
    ("notmnist-test", "test", 10_000, [0.4266]),
]


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize(("name", "split", "count", "means"), REAL)
def test_real_files_are_read(name: str, split: DataSplit, count: int, means: list[float]) -> None:
    """The means of their channels are the ones that everybody normalises with."""
    dataset = ALL[name]
    images, labels = load(dataset, split, Path(os.environ["CAPSNET_DATA_DIR"]), fetch=False)
    assert (count, *dataset.image_shape) == images.shape
    assert means == pytest.approx((images.mean(axis=(0, 2, 3)) / 255).tolist(), abs=1e-4)
    assert set(range(10)) == set(labels.tolist())
    assert (np.uint8, np.int64) == (images.dtype, labels.dtype)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_the_last_examples_are_held_out(count: int) -> None:
    """Training keeps the first examples, validation gets the last `count`, none is lost."""
    training, validation = split_last(Examples(IMAGES, LABELS), count)
    np.testing.assert_array_equal(LABELS[: 5 - count], training.labels)
    np.testing.assert_array_equal(LABELS[5 - count :], validation.labels)
    np.testing.assert_array_equal(IMAGES[: 5 - count], training.images)
    np.testing.assert_array_equal(IMAGES[5 - count :], validation.images)
