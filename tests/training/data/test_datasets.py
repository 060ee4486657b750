from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from training.data.datasets import (
    DATASETS,
    NOVELTY_DATASETS,
    Examples,
    draw_rows,
    load,
    split_last,
)
from training.data.source import DataSplit, Source

DOWNLOADED = [name for name, one in DATASETS.items() if isinstance(one.source, Source)]
ALL = {**{name: DATASETS[name] for name in DOWNLOADED}, **NOVELTY_DATASETS}
IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 1, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5])
REAL: list[tuple[str, DataSplit, int, list[float]]] = [
    ("mnist", "train", 60_000, [0.1307]),
    ("fashion-mnist", "train", 60_000, [0.2860]),
    ("cifar-10", "train", 50_000, [0.4914, 0.4822, 0.4465]),
    ("kmnist-test", "test", 10_000, [0.1846]),
    ("notmnist-test", "test", 10_000, [0.4266]),
]
UNEVEN = np.repeat([0, 1, 2], [60, 30, 10])
"""In the order of their classes, as in a folder."""


@pytest.mark.parametrize("name", DOWNLOADED)
def test_what_is_downloaded_is_checked(name: str) -> None:
    """Each file has a digest, or comes in an archive that has one."""
    source = DATASETS[name].source
    assert isinstance(source, Source)
    assert {"train", "test"} == source.files.keys()
    files = [file for split in source.files.values() for file in split]
    assert source.archive_md5 or all(file.md5 for file in files)


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize(("name", "split", "count", "means"), REAL)
def test_real_files_are_read(name: str, split: DataSplit, count: int, means: list[float]) -> None:
    """The means of their channels are the ones that everybody normalises with."""
    dataset = ALL[name]
    examples = load(dataset, split, Path(os.environ["CAPSNET_DATA_DIR"]), fetch=False)
    images, labels = examples.images, examples.labels
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


@pytest.mark.parametrize("count", [7, 20, 50, 100])
def test_a_sample_has_the_shares_of_the_classes(count: int) -> None:
    """To an image; without repeats."""
    rows = draw_rows(UNEVEN, count, seed=0)
    assert count == len(set(rows.tolist()))
    found = np.bincount(UNEVEN[rows], minlength=3)
    assert np.abs(found - np.array([0.6, 0.3, 0.1]) * count).max() <= 1


def test_few_images_show_many_objects() -> None:
    """Each of ten objects is seen once before any is seen twice."""
    objects = np.arange(100) // 10
    rows = draw_rows(np.zeros(100, np.int64), 15, seed=0, objects=objects)
    counts = np.bincount(objects[rows])
    assert (10, 1, 2) == (len(counts), counts.min(), counts.max())


@pytest.mark.parametrize("per_object", [1, 5])
def test_halves_share_classes_and_no_object(per_object: int) -> None:
    """Every image is in one of them."""
    objects = np.arange(100) // per_object
    images = np.arange(100)
    one, other = (half.images for half in Examples(images, UNEVEN, objects).halves(seed=0))
    assert list(range(100)) == sorted([*one.tolist(), *other.tolist()])
    assert not set(objects[one]) & set(objects[other])
    counts = [np.bincount(UNEVEN[rows], minlength=3) for rows in (one, other)]
    assert np.abs(counts[0] - counts[1]).max() <= per_object
