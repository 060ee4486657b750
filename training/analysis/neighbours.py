"""Choose a bundle's training images for `/neighbours`, and measure their poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import Bundle
from model.bundle.neighbours import NeighbourImages
from model.canvas import draw_sheet
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.analysis.prototypes import fit_whitening, make_gallery
from training.answers import BATCH, is_wrong
from training.data.datasets import DATASETS, Examples
from training.data.pairs import fixed_pairs
from training.random_sample import draw_rows, objects_of, take
from training.recipes import Recipe, recipe_of
from training.training_data import TrainingData

COUNT = 1000
"""The number of poses in a bundle, the same of each class."""
MEASURED = 5000
"""The number of images whose poses measure the variance of a class."""
_SEED = 3
"""The quality of the WebP file: 1,000 digits take 120 KB, 1,000 photographs 210."""


class _Posed(NamedTuple):
    """The poses of images, one of each of their classes."""

    poses: Floats
    """(N, C, D)."""
    labels: NDArray[np.int64]
    """(N, C)."""
    right: NDArray[np.bool_]
    """(N,): whether these are the most present classes."""


def choose_images(
    bundle: Bundle, data: TrainingData, *, own_images: bool = True
) -> NeighbourImages:
    """Choose training images of a network at random, the same number of each class.

    Those that it answers wrongly are taken last: the pose of a class that it does not see says
    nothing. Images whose licence is not known stay out; their poses do not.

    Args:
        bundle: of the network.
        data: that it was trained on.
        own_images: whether images of a folder of one's own go into the bundle.
    """
    recipe = recipe_of(bundle)
    published = DATASETS.get(recipe.dataset)
    return collect(
        bundle,
        _sample(data, recipe),
        licence=published.licence if published else "yours" * own_images,
        source=recipe.dataset if published else f"folder {recipe.dataset}",
    )


def collect(bundle: Bundle, examples: Examples, *, licence: str, source: str) -> NeighbourImages:
    """Measure the poses of images, and choose those that `/neighbours` compares with.

    Args:
        bundle: of a network with poses.
        examples: images, with one label or several.
        licence: of the images; empty leaves the images out and keeps their poses.
        source: of the images, in words.
    """
    manifest = bundle.manifest
    posed = _measure(Runtime(bundle), examples)
    chosen = choose(posed.labels, posed.right, classes=manifest.num_classes, count=COUNT)
    sheet = draw_sheet(examples.images[chosen]) if licence else b""
    each = posed.labels.shape[1]
    gallery = make_gallery(
        poses=posed.poses[chosen].reshape(len(chosen) * each, -1).astype(np.float16),
        labels=posed.labels[chosen].ravel().astype(np.uint16),
        images=np.arange(len(chosen), dtype=np.uint16).repeat(each),
        whitening=fit_all(posed, manifest.num_classes).astype(np.float16),
        sheet=np.frombuffer(sheet, np.uint8),
    )
    kind = "pairs of training digits" if each > 1 else "training images"
    return NeighbourImages(
        images=f"{len(chosen):,} {kind}",
        licence=licence,
        source=source,
        gallery=gallery,
    )


def choose(
    labels: NDArray[np.int64], right: NDArray[np.bool_], *, classes: int, count: int
) -> NDArray[np.int64]:
    """Choose rows of images until each class has its share of `count`; wrong answers come last.

    Args:
        labels: (N, C).
        right: (N,).
    """
    quota = max(1, count // classes)
    have = np.zeros(classes, np.int64)
    chosen = []
    for row in np.argsort(~right, kind="stable").tolist():
        if (have[labels[row]] < quota).any():
            have[labels[row]] += 1
            chosen.append(row)
        if have.sum() >= quota * classes:
            break
    return np.array(chosen, np.int64)


def fit_all(posed: _Posed, classes: int) -> NDArray[np.float64]:
    """The whitening of each class, (K, D, D)."""
    poses = posed.poses.reshape(-1, posed.poses.shape[-1]).astype(np.float64)
    labels = posed.labels.ravel()
    means = np.zeros((classes, poses.shape[1]))
    for label in np.unique(labels):
        means[label] = poses[labels == label].mean(axis=0)
    within = np.cov(poses - means[labels], rowvar=False, bias=True)
    return np.stack([fit_whitening(poses[labels == label], within) for label in range(classes)])


def _sample(data: TrainingData, recipe: Recipe) -> Examples:
    """Up to MEASURED images at random, labels (N,), or pairs of digits, labels (N, 2)."""
    training = data.training
    if recipe.task == "pairs":
        size, shift_px = recipe.network.height, recipe.shift_px
        pairs = fixed_pairs(training, MEASURED // 2, size=size, shift_px=shift_px, seed=_SEED)
        return Examples(pairs.images, pairs.labels)
    objects = objects_of(recipe.dataset, len(training.labels))
    return take(training, draw_rows(training.labels, MEASURED, seed=_SEED, objects=objects))


def _measure(runtime: Runtime, examples: Examples) -> _Posed:
    labels = examples.labels.reshape(len(examples.labels), -1)
    poses, right = [], []
    for start in range(0, len(labels), BATCH):
        own = labels[start : start + BATCH]
        encoding = runtime.encode(scale(examples.images[start : start + BATCH]))
        right.append(~is_wrong(encoding.presence, own))
        poses.append(np.take_along_axis(encoding.poses, own[..., None], axis=1))
    return _Posed(np.concatenate(poses), labels, np.concatenate(right))
