"""Labelled images, and how some of them are set aside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Examples(NamedTuple):
    """Labelled images."""

    images: NDArray[np.uint8]
    """(N, C, H, W)."""
    labels: NDArray[np.int64]
    """(N,)."""


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
