"""The data sets: where their files come from, and how they are read and checked."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.download import download
from training.data.idx import parse_idx

Split = Literal["train", "test"]

HELD_OUT = 5000
"""Training examples kept for validation: the last ones of the file."""

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class DatasetError(Exception):
    """A data set's file is missing, or is not the published one."""


class Examples(NamedTuple):
    """Labelled images."""

    images: NDArray[np.uint8]
    """(N, H, W), light strokes on dark."""
    labels: NDArray[np.uint8]
    """(N,)."""


@dataclass(frozen=True)
class Dataset:
    """A published data set of four gzip-compressed IDX files."""

    name: str
    kind: Literal["digits", "clothes"]
    """What the pictures show."""
    class_names: tuple[str, ...]
    mirrors: tuple[str, ...]
    """Base addresses, tried in order; each ends in a slash."""
    md5: dict[str, str]
    """Digest of each *decompressed* file: mirrors compress differently."""


DATASETS = {
    "mnist": Dataset(
        name="mnist",
        kind="digits",
        class_names=DIGITS,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        md5={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
    ),
    "fashion-mnist": Dataset(
        name="fashion-mnist",
        kind="clothes",
        class_names=CLOTHES,
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        md5={
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
    ),
}


def load(dataset: Dataset, split: Split, data_dir: Path, *, fetch: bool = True) -> Examples:
    """Read one split from `data_dir/<name>/`, downloading what is not there yet.

    Args:
        fetch: False refuses instead of downloading.

    Raises:
        DatasetError: a file is missing, unreadable or not the published one. A file that was
            already there is never overwritten.
        training.data.download.DownloadError: no mirror gave the file.
    """
    prefix = "train" if split == "train" else "t10k"
    images, labels = (
        _read(dataset, f"{prefix}-{kind}-ubyte", data_dir / dataset.name, fetch=fetch)
        for kind in ("images-idx3", "labels-idx1")
    )
    if len(images) != len(labels):
        raise DatasetError(f"{dataset.name}: {len(images)} images but {len(labels)} labels")
    return Examples(images, labels)


def hold_out(examples: Examples, count: int) -> tuple[Examples, Examples]:
    """Split training examples into (training, validation); the last `count` are held out.

    Raises:
        ValueError: that would leave nothing to train on.
    """
    cut = len(examples.labels) - count
    if cut < 1:
        raise ValueError(f"cannot hold out {count} of {len(examples.labels)} examples")
    return (
        Examples(examples.images[:cut], examples.labels[:cut]),
        Examples(examples.images[cut:], examples.labels[cut:]),
    )


def choose(examples: Examples, count: int, *, seed: int) -> Examples:
    """So many examples, as many of each class, in the order of the file.

    Random numbers are outputs of numpy's PCG64, which stay the same for good.

    Raises:
        ValueError: the classes cannot share them equally.
    """
    classes = np.unique(examples.labels)
    each, rest = divmod(count, len(classes))
    chances = np.random.PCG64(seed).random_raw(len(examples.labels))
    order = np.argsort(chances, kind="stable")
    rows = [order[examples.labels[order] == label][:each] for label in classes]
    chosen = np.sort(np.concatenate(rows))
    if rest or len(chosen) != count or not each:
        raise ValueError(f"{len(classes)} classes cannot share {count} examples equally")
    return Examples(examples.images[chosen], examples.labels[chosen])


def _read(dataset: Dataset, name: str, directory: Path, *, fetch: bool) -> NDArray[np.uint8]:
    path = directory / f"{name}.gz"
    if not path.exists():
        if not fetch:
            raise DatasetError(f"{path} is missing")
        download(
            [f"{mirror}{path.name}" for mirror in dataset.mirrors],
            path,
            verify=lambda content: _check(content, dataset.md5[name]) is not None,
        )
    content = _check(path.read_bytes(), dataset.md5[name])
    if content is None:
        raise DatasetError(f"{path} is not the published file; move it away to download it again")
    return parse_idx(content)


def _check(compressed: bytes, md5: str) -> bytes | None:
    """The decompressed bytes if they are the published ones."""
    try:
        content = gzip.decompress(compressed)
    except (OSError, EOFError, zlib.error):
        return None
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return content if digest == md5 else None
