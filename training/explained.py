"""Measure what the pose of a class explains of images, next to PCA of the same class.

A linear code of D numbers is the least that a pose of D numbers should beat: PCA minimises the
squared error among linear codes (Eckart and Young 1936; Bourlard and Kamp 1988). The decoder is
told the class. So PCA is fitted to each class alone.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from model.bundle import Bundle
from model.bundle.health import Explained
from model.preprocess import Floats
from model.runtime import Runtime
from training.answers import Answers, as_floats, decode_classes
from training.data.datasets import Examples, first_rows
from training.data.pairs import fixed_pairs
from training.recipes import recipe_of

COUNT = 3000
"""The most images that are explained, or objects of pairs."""
FITTED = 20_000
"""The most training images that PCA is fitted on."""
COMPONENTS = (8, 16, 32, 64)
"""The numbers of principal components that are reported, and that of a pose."""
_COLUMNS, _SEED = 10, 7


def measure_explained(
    runtime: Runtime, learnt: Examples, answers: Answers, *, described: str
) -> tuple[Explained, dict[str, Floats]]:
    """Measure what poses explain of the images of a network with a decoder.

    The most present class of each image is decoded; of pairs, the classes of the labels.

    Args:
        learnt: PCA is fitted on them, or on pairs of them.
        answers: these are explained.
        described: what they are, in words.

    Returns:
        the measures, and some images (N, C, H, W) of all classes with their reconstructions and
        those of PCA, by title.
    """
    dim, fitted = runtime.bundle.manifest.class_dim, _draw_sample(runtime.bundle, learnt)
    answers = answers.draw(COUNT // 2 if answers.are_pairs else COUNT, seed=_SEED)
    classes = answers.labels if answers.are_pairs else answers.first[:, None]
    decoded = decode_classes(runtime, answers.poses, classes)
    decoded = decoded.reshape(-1, *decoded.shape[2:])
    train, test = _objects_in(fitted), _objects_in(answers)
    sizes = sorted({*COMPONENTS, dim})
    by_class = draw_components(
        train, fitted.labels.ravel(), images=test, labels=classes.ravel(), sizes=(0, *sizes)
    )
    few = first_rows(answers.labels.ravel(), _COLUMNS)
    drawn_by = {"image": test, f"pose, {dim}": _flat(decoded), f"PCA, {dim}": by_class[dim]}
    rows = {
        title: images[few].reshape(-1, *decoded.shape[1:]) for title, images in drawn_by.items()
    }
    mean = train.mean(axis=0)
    shares = {size: explained_share(test, drawn, mean) for size, drawn in by_class.items()}
    explained = Explained(
        images=described,
        count=len(test),
        pose=explained_share(test, _flat(decoded), mean),
        class_mean=shares.pop(0),
        pca={str(size): share for size, share in shares.items()},
        class_dim=dim,
    )
    return explained, rows


def draw_components(
    learnt: Floats,
    learnt_labels: NDArray[np.int64],
    *,
    images: Floats,
    labels: NDArray[np.int64],
    sizes: Collection[int],
) -> dict[int, Floats]:
    """Project images (N, P) to the mean and the first principal components of their classes.

    An image of a class without training images becomes the mean of all.

    Args:
        learnt: images (M, P) of all classes, which give the components.
        sizes: the numbers of components, the keys of the result; 0 gives the means. A class has
            fewer components if it has fewer images.
    """
    from sklearn.decomposition import PCA  # noqa: PLC0415  scikit-learn takes a second

    drawn = {size: np.tile(learnt.mean(axis=0), (len(images), 1)) for size in sizes}
    for label in np.unique(learnt_labels):
        own, rows = learnt[learnt_labels == label], labels == label
        mean, axes = own.mean(axis=0), np.empty((0, own.shape[1]), np.float32)
        if most := min(max(sizes), len(own) - 1, own.shape[1]):
            pca = PCA(most, svd_solver="randomized", random_state=_SEED)
            axes = pca.fit(own).components_
        for size in sizes:
            leading = axes[:size]
            drawn[size][rows] = mean + (images[rows] - mean) @ leading.T @ leading
    return drawn


def explained_share(images: Floats, drawn: Floats, mean: Floats) -> float:
    """The share of the variance of images (N, P) around a mean (P,) that others (N, P) explain."""
    missed = np.square(images - drawn, dtype=np.float64).sum()
    total = np.square(images - mean, dtype=np.float64).sum()
    return round(float(1 - missed / total), 4)


def _draw_sample(bundle: Bundle, examples: Examples) -> Examples:
    """Up to FITTED images at random; of a network for pairs, pairs with as many digits."""
    if not bundle.manifest.of_pairs:
        return examples.draw(FITTED, seed=_SEED)
    size, shift_px = bundle.manifest.height, recipe_of(bundle).shift_px
    return fixed_pairs(examples, FITTED // 2, size=size, shift_px=shift_px, seed=_SEED)


def _objects_in(sample: Examples) -> Floats:
    """The images (N, P) of a sample, flat, or the digits (2 N, P) of its pairs, each alone."""
    images = sample.images if sample.object_images is None else sample.object_images
    return as_floats(images).reshape(sample.labels.size, -1)


def _flat(images: Floats) -> Floats:
    return images.reshape(len(images), -1)
