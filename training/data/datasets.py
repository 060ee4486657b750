"""Labelled images, the published data sets and their sources, and images drawn at random.

Folders are in the order of their classes, and rendered images in that of their objects. So no part
of a data set is a slice of it: of those that are drawn, the share of each class stays, and so do
objects that images share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from training.data import assemblies
from training.data.source import DatasetError, DataSplit, File, Source, read_cifar, read_idx

HELD_OUT = 5000
"""The number of training examples kept for validation: the last ones."""
DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_OBJECTS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled images, or pairs of digits."""

    images: NDArray[Any]
    """(N, C, H, W): pixels, or floats in [0, 1]."""
    labels: Rows
    """(N,), or (N, 2) of pairs."""
    objects: Rows | None = None
    """Which object (N,) each image shows, if several show one. Such images are not independent."""
    object_images: NDArray[np.uint8] | None = None
    """Each digit of pairs alone (N, 2, H, W)."""
    values: NDArray[np.float64] | None = None
    """What is known of rendered objects (N, F): see `assemblies.KNOWN`."""
    places: NDArray[np.str_] | None = None
    """The class and name (N,) of each picture's file, if it has one."""

    @property
    def are_pairs(self) -> bool:
        """Whether each image shows two digits."""
        return self.object_images is not None

    def at(self, rows: Rows | slice) -> Self:
        """Some of the images."""
        parts = {name: part[rows] for name, part in vars(self).items() if part is not None}
        return replace(self, **parts)

    def draw(self, count: int, *, seed: int) -> Self:
        """Up to `count` of the images at random; of pairs, which are random, the first."""
        if self.are_pairs:
            return self.at(slice(count))
        return self.at(draw_rows(self.labels, count, seed=seed, objects=self.objects))

    def halves(self, *, seed: int) -> tuple[Self, Self]:
        """Two random halves of single images, of like classes, which share no object."""
        shown = np.arange(len(self.labels)) if self.objects is None else self.objects
        _, first, which = np.unique(shown, return_index=True, return_inverse=True)
        chosen = draw_rows(self.labels[first], (len(first) + 1) // 2, seed=seed)
        is_first = np.isin(which, chosen)
        return self.at(np.flatnonzero(is_first)), self.at(np.flatnonzero(~is_first))


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: its classes, image shape and source."""

    name: str
    kind: str
    """The things that the images show, in the plural."""
    image_shape: tuple[int, int, int]
    """The shape of one image: channels, height and width."""
    class_names: tuple[str, ...]
    preprocess: Literal["digit", "stretch", "crop"]
    """The way to fit an image to the network's size (`model.preprocess`)."""
    held_out_count: int = HELD_OUT
    """The number of last training examples that are kept for validation."""
    source: Source | assemblies.RenderedSource | None = None
    """The source of the images; None where they are a user's own."""
    licence: str = ""
    """The images' licence; empty where their makers state none, or one that is not free."""


def load(dataset: Dataset, split: DataSplit, data_dir: Path, *, fetch: bool = True) -> Examples:
    """Read one split from `data_dir/<name>/`, downloading or rendering what is not there yet.

    Args:
        fetch: False refuses instead.

    Raises:
        DatasetError: the data set has no such split, or a file is missing, unreadable or not the
            published one, or no mirror gave it. A file that was already there is never overwritten.
    """
    source = dataset.source
    if source is None or (isinstance(source, Source) and split not in source.files):
        raise DatasetError(f"{dataset.name} has no {split} split to read")
    columns = source.columns(split, data_dir / dataset.name, fetch=fetch)
    images, labels = columns["images"], columns["labels"]
    if images.shape[1:] != dataset.image_shape:
        raise DatasetError(
            f"{dataset.name}: images are {images.shape[1:]}, not {dataset.image_shape}"
        )
    if labels.max() >= len(dataset.class_names):
        raise DatasetError(f"{dataset.name}: label {labels.max()} is no class")
    return Examples(images, labels, columns.get("objects"), values=columns.get("values"))


def split_last(examples: Examples, count: int) -> tuple[Examples, Examples]:
    """Split training examples into training and validation, of which the last `count` are.

    Raises:
        ValueError: that would leave nothing to train on.
    """
    cut = len(examples.labels) - count
    if cut < 1:
        raise ValueError(f"cannot hold out {count} of {len(examples.labels)} examples")
    return examples.at(slice(cut)), examples.at(slice(cut, None))


def _idx(name: str, md5: dict[str, str], *mirrors: str, **facts: Any) -> Dataset:
    """A data set in MNIST's format and of its size, or its test split alone: `md5` names files."""
    files: dict[DataSplit, list[File]] = {}
    for file, digest in md5.items():
        split: DataSplit = "test" if file.startswith("t10k") else "train"
        count = {"train": 60_000, "test": 10_000}[split]
        files.setdefault(split, []).append(File(file, count, digest))
    source = Source(mirrors=mirrors, files=files, read=read_idx)
    return Dataset(name=name, image_shape=(1, 28, 28), source=source, **facts)


def _by_name(*datasets: Dataset) -> dict[str, Dataset]:
    return {dataset.name: dataset for dataset in datasets}


DATASETS = _by_name(
    _idx(
        "mnist",
        {
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        kind="digits",
        class_names=DIGITS,
        preprocess="digit",
        licence="CC BY-SA 3.0",
    ),
    _idx(
        "fashion-mnist",
        {
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        kind="clothes",
        class_names=CLOTHES,
        preprocess="stretch",
        licence="MIT",
    ),
    Dataset(
        name="cifar-10",
        kind="photographs",
        image_shape=(3, 32, 32),
        class_names=_OBJECTS,
        preprocess="crop",
        source=Source(
            mirrors=("https://www.cs.toronto.edu/~kriz/",),
            archive="cifar-10-binary.tar.gz",
            archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
            files={
                "train": tuple(File(f"data_batch_{n}.bin", 10_000) for n in range(1, 6)),
                "test": (File("test_batch.bin", 10_000),),
            },
            read=read_cifar,
        ),
    ),
    Dataset(
        name="assemblies",
        kind="assemblies",
        image_shape=(1, 48, 48),
        class_names=assemblies.CLASSES,
        preprocess="stretch",
        held_out_count=len(assemblies.CLASSES) * assemblies.VIEWS,
        source=assemblies.RenderedSource(size_px=48),
        licence="Apache-2.0",
    ),
)
"""Data sets that networks are trained on."""

NOVELTY_DATASETS = _by_name(
    _idx(
        "kmnist-test",
        {
            "t10k-images-idx3-ubyte": "bf305b8cd328700fbc17f5acbc2856d2",
            "t10k-labels-idx1-ubyte": "9f55f451c0988b028eccdf7d5cc265ab",
        },
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        kind="Hiragana",
        class_names=tuple("おきすつなはまやれを"),
        preprocess="digit",
    ),
    _idx(
        "notmnist-test",
        {"t10k-images-idx3-ubyte": "", "t10k-labels-idx1-ubyte": ""},
        kind="letters",
        class_names=tuple("ABCDEFGHIJ"),
        preprocess="digit",
    ),
)
"""Data sets that no network is trained on, to measure novelty scores with."""


def draw_rows(labels: Rows, count: int, *, seed: int, objects: Rows | None = None) -> Rows:
    """Draw up to `count` images at random, without repeats: their rows, in random order.

    Every class keeps its share, to an image. Each object gives one image before any gives a second.

    Args:
        labels: (N,).
        objects: which object (N,) each image shows, if several show one.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    if objects is not None:
        order = order[np.argsort(rank_in_class(objects[order]), kind="stable")]
    return order[_even_order(labels[order], rng)][:count]


def first_rows(labels: Rows, count: int) -> Rows:
    """Rows of the first image of each class, then of the second, up to `count`; by class."""
    rows = np.lexsort((labels, rank_in_class(labels)))[:count]
    return np.asarray(rows[np.argsort(labels[rows], kind="stable")])


def rank_in_class(labels: Rows) -> Rows:
    """How many images of the same class come before each image (N,)."""
    order = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(starts, counts)
    return ranks


def _even_order(labels: Rows, rng: np.random.Generator) -> Rows:
    """An order in which the first images of any number have the classes' shares, to an image."""
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    places = (rank_in_class(labels) + rng.random(len(counts))[which]) / counts[which]
    return np.argsort(places, kind="stable")
