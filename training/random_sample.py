"""Draw images at random: the share of each class stays, and so do objects that images share.

Folders are in the order of their classes, and rendered images in that of their objects. So no part
of a data set is a slice of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.assemblies import RenderedSource, object_of
from training.data.datasets import DATASETS, Examples

Rows = NDArray[np.int64]


def objects_of(dataset: str, count: int) -> Rows | None:
    """Which object (N,) each of the last `count` images of a split shows.

    None where every image shows another one. Images of one object are not independent.
    """
    published = DATASETS.get(dataset)
    is_rendered = published is not None and isinstance(published.source, RenderedSource)
    return object_of(count) if is_rendered else None


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
        turns = _rank(objects[order])
        order = order[np.argsort(turns, kind="stable")]
    return order[_even_order(labels[order], rng)][:count]


def split_rows(labels: Rows, *, seed: int, objects: Rows | None = None) -> tuple[Rows, Rows]:
    """Divide images at random into halves of like classes: the rows of each, rising.

    All images of an object are in the same half.

    Args:
        labels: (N,).
        objects: which object (N,) each image shows, if several show one.
    """
    rng = np.random.default_rng(seed)
    shown = np.arange(len(labels)) if objects is None else objects
    kinds, first, which = np.unique(shown, return_index=True, return_inverse=True)
    order = rng.permutation(len(kinds))
    order = order[_even_order(labels[first][order], rng)]
    is_second = np.zeros(len(kinds), np.bool_)
    is_second[order[(len(kinds) + 1) // 2 :]] = True
    return np.flatnonzero(~is_second[which]), np.flatnonzero(is_second[which])


def take(examples: Examples, rows: Rows) -> Examples:
    """The examples of some rows."""
    return Examples(examples.images[rows], examples.labels[rows])


def _rank(values: Rows) -> Rows:
    """How many of the same value come before each of the values (N,)."""
    order = np.argsort(values, kind="stable")
    _, starts, counts = np.unique(values[order], return_index=True, return_counts=True)
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, counts)
    return ranks


def _even_order(labels: Rows, rng: np.random.Generator) -> Rows:
    """An order in which the first images of any number have the classes' shares, to an image."""
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    places = (_rank(labels) + rng.random(len(counts))[which]) / counts[which]
    return np.argsort(places, kind="stable")
