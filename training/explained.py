"""Measure what the pose of a class explains of images, next to PCA of the same class.

A linear code of D numbers is the least that a pose of D numbers should beat: PCA minimises the
squared error among linear codes (Eckart and Young 1936; Bourlard and Kamp 1988). The decoder is
told the class. So PCA is fitted to each class alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from model.bundle import Bundle
from model.bundle.health import Explained
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.answers import decode, encode
from training.data.datasets import Examples, draw_rows, objects_of, spread_rows
from training.data.pairs import fixed_pairs
from training.device import open_runtime
from training.recipes import recipe_of

COUNT = 3000
"""The most images that are explained."""
FITTED = 20_000
"""The most training images that PCA is fitted on."""
COMPONENTS = (8, 16, 32, 64)
"""The numbers of principal components that are reported, and that of a pose."""
_COLUMNS, _SEED = 10, 7


class Shown(NamedTuple):
    """Images (N, C, H, W) that a network answers, and the objects that its poses should draw."""

    images: NDArray[np.uint8]
    objects: NDArray[np.uint8]
    """(N L, C, H, W): the images themselves, or the L objects of each."""
    labels: NDArray[np.int64]
    """(N, L)."""


class ClassComponents:
    """Principal components of the images (N, P) of each class.

    Args:
        labels: (N,).
        count: the number of components; a class has fewer, if it has fewer images.
    """

    def __init__(self, images: Floats, labels: NDArray[np.int64], count: int) -> None:
        self._mean = images.mean(axis=0)
        self._classes = {}
        for label in np.unique(labels):
            own = images[labels == label]
            most = min(count, len(own) - 1, own.shape[1])
            pca = PCA(most, svd_solver="randomized", random_state=_SEED) if most else None
            mean = own.mean(axis=0)
            axes = pca.fit(own).components_ if pca else np.empty((0, own.shape[1]), np.float32)
            self._classes[int(label)] = (mean, axes)

    def reconstruct(self, images: Floats, labels: NDArray[np.int64], count: int) -> Floats:
        """Project images (N, P) to the mean and the first `count` components of their classes.

        An image of a class without training images becomes the mean of all.

        Args:
            labels: (N,).
            count: 0 gives the means.
        """
        drawn = np.tile(self._mean, (len(images), 1))
        for label, (mean, axes) in self._classes.items():
            rows, leading = labels == label, axes[:count]
            drawn[rows] = mean + (images[rows] - mean) @ leading.T @ leading
        return drawn


def measure_explained(
    bundle: Bundle,
    learnt: Examples,
    held_out: Examples,
    *,
    described: str,
) -> tuple[Explained, dict[str, Floats]]:
    """Measure what poses explain of the held-out images of a network with a decoder.

    Args:
        learnt: PCA is fitted on them.
        held_out: these are explained.
        described: what they are, in words.

    Returns:
        the measures, and some images (N, C, H, W) of all classes with their reconstructions and
        those of PCA, by title.
    """
    dim = bundle.manifest.class_dim
    fitted = show_objects(bundle, learnt, FITTED)
    shown = show_objects(bundle, held_out, COUNT)
    train, test = (_flat(scale(part.objects)) for part in (fitted, shown))
    answered, decoded = reconstruct(open_runtime(bundle), shown)
    sizes = sorted({*COMPONENTS, dim})
    components = ClassComponents(train, fitted.labels.ravel(), max(sizes))
    mean = train.mean(axis=0)
    by_class = {size: components.reconstruct(test, answered, size) for size in (0, *sizes)}
    few = spread_rows(shown.labels.ravel(), _COLUMNS)
    drawn_by = {"image": test, f"pose, {dim}": _flat(decoded), f"PCA, {dim}": by_class[dim]}
    rows = {
        title: images[few].reshape(-1, *decoded.shape[1:]) for title, images in drawn_by.items()
    }
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


def explained_share(images: Floats, drawn: Floats, mean: Floats) -> float:
    """The share of the variance of images (N, P) around a mean (P,) that others (N, P) explain."""
    missed = np.square(images - drawn, dtype=np.float64).sum()
    total = np.square(images - mean, dtype=np.float64).sum()
    return round(float(1 - missed / total), 4)


def reconstruct(runtime: Runtime, shown: Shown) -> tuple[NDArray[np.int64], Floats]:
    """Decode the most present class of each image; of several objects, their labels' classes.

    Returns:
        the classes (N L,) and the reconstructions (N L, C, H, W).
    """
    presence, poses = encode(runtime, shown.images)
    is_single = shown.labels.shape[1] == 1
    labels = presence.argmax(axis=1)[:, None] if is_single else shown.labels
    chosen = np.take_along_axis(poses, labels[:, :, None], axis=1).reshape(-1, poses.shape[-1])
    return labels.ravel(), decode(runtime, chosen, labels.ravel())


def show_objects(bundle: Bundle, examples: Examples, count: int) -> Shown:
    """Up to `count` images at random with their objects; pairs for a network for pairs."""
    if bundle.manifest.mask_threshold is not None:
        size, shift_px = bundle.manifest.height, recipe_of(bundle).shift_px
        pairs = fixed_pairs(examples, count // 2, size=size, shift_px=shift_px, seed=_SEED)
        objects = pairs.object_images.reshape(-1, 1, size, size)
        return Shown(pairs.images, objects, pairs.labels)
    shown_in = objects_of(bundle.manifest.dataset, len(examples.labels))
    rows = draw_rows(examples.labels, count, seed=_SEED, objects=shown_in)
    images, labels = examples.at(rows)
    return Shown(images, images, labels[:, None])


def _flat(images: Floats) -> Floats:
    return np.ascontiguousarray(images.reshape(len(images), -1))
