"""Measure what the pose of a class explains of images, next to PCA with as many numbers.

A linear code of D numbers is the least that a pose of D numbers should beat: PCA minimises the
squared error among linear codes (Eckart and Young 1936; Bourlard and Kamp 1988).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import Bundle
from model.bundle.explained import Explained
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.answers import BATCH
from training.data.datasets import Examples
from training.data.pairs import fixed_pairs
from training.figures import make_axes, save, show
from training.random_sample import draw_rows, objects_of, take
from training.recipes import recipe_of
from training.training_data import TrainingData

COUNT = 3000
"""The most images that are explained."""
FITTED = 20_000
"""The most training images that PCA is fitted on."""
COMPONENTS = (8, 16, 32, 64)
"""The numbers of principal components that are reported, and that of a pose."""
_MAX_ROWS = 4096
_COLUMNS, _SEED = 10, 7


class Shown(NamedTuple):
    """Images (N, C, H, W) that a network answers, and the objects that its poses should draw."""

    images: NDArray[np.uint8]
    objects: NDArray[np.uint8]
    """(N L, C, H, W): the images themselves, or the L objects of each."""
    labels: NDArray[np.int64]
    """(N, L)."""


class Splits(NamedTuple):
    """Images that PCA is fitted to, and images that are explained."""

    training: Examples
    validation: Examples


class Components(NamedTuple):
    """Principal components of training images."""

    mean: Floats
    """(P,), of P numbers in an image."""
    axes: Floats
    """(P, M), the leading one first, orthonormal."""

    def reconstruct(self, images: Floats, count: int) -> Floats:
        """Project images (N, P) to the mean and the first `count` components: (N, P)."""
        axes = self.axes[:, :count]
        return np.asarray(self.mean + (images - self.mean) @ axes @ axes.T)


def measure_explained(
    bundle: Bundle, data: TrainingData | Splits, *, described: str, figure: Path | None = None
) -> Explained:
    """Measure what poses explain of the held-out images of a network with a decoder.

    Args:
        data: PCA and class means are fitted on its training images.
        described: its held-out images, in words.
        figure: where images, reconstructions and PCA are drawn.
    """
    runtime, dim = Runtime(bundle), bundle.manifest.class_dim
    fitted = show_objects(bundle, data.training, FITTED)
    shown = show_objects(bundle, data.validation, COUNT)
    train, test = (_flat(scale(part.objects)) for part in (fitted, shown))
    answered, drawn = reconstruct(runtime, shown)
    sizes = sorted({*COMPONENTS, dim})
    components = fit_components(train, max(sizes))
    means = _class_means(train, fitted.labels.ravel(), bundle.manifest.num_classes)
    mean = components.mean
    if figure:
        rows = {
            "image": test,
            f"pose, {dim}": _flat(drawn),
            f"PCA, {dim}": components.reconstruct(test, dim),
        }
        draw_explained(rows, shown.labels.ravel(), drawn.shape[1:], figure)
    return Explained(
        images=described,
        count=len(test),
        pose=explained_share(test, _flat(drawn), mean),
        class_mean=explained_share(test, means[answered], mean),
        pca={
            str(size): explained_share(test, components.reconstruct(test, size), mean)
            for size in sizes
        },
        class_dim=dim,
    )


def explained_share(images: Floats, drawn: Floats, mean: Floats) -> float:
    """The share of the variance of images (N, P) around a mean (P,) that others (N, P) explain."""
    missed = np.square(images - drawn, dtype=np.float64).sum()
    total = np.square(images - mean, dtype=np.float64).sum()
    return round(float(1 - missed / total), 4)


def fit_components(images: Floats, count: int) -> Components:
    """Fit `count` principal components to images (N, P), or as many as they have.

    Of large images, the first _MAX_ROWS are taken.
    """
    mean = images.mean(axis=0)
    if images.shape[1] > _MAX_ROWS or len(images) < images.shape[1]:
        _, _, directions = np.linalg.svd(images[:_MAX_ROWS] - mean, full_matrices=False)
        return Components(mean, np.ascontiguousarray(directions[:count].T))
    centred = images - mean
    _, axes = np.linalg.eigh(centred.T @ centred)  # eigenvalues ascend
    return Components(mean, np.ascontiguousarray(axes[:, ::-1][:, :count]))


def reconstruct(runtime: Runtime, shown: Shown) -> tuple[NDArray[np.int64], Floats]:
    """Decode the most present class of each image; of several objects, their labels' classes.

    Returns:
        the classes (N L,) and the reconstructions (N L, C, H, W).
    """
    classes, drawn = [], []
    for start in range(0, len(shown.images), BATCH):
        presence, poses = runtime.encode(scale(shown.images[start : start + BATCH]))
        labels = shown.labels[start : start + BATCH]
        if labels.shape[1] == 1:
            labels = presence.argmax(axis=1)[:, None]
        classes.append(labels.ravel())
        chosen = np.take_along_axis(poses, labels[:, :, None], axis=1)
        drawn.append(runtime.decode(chosen.reshape(-1, poses.shape[-1]), labels.ravel()))
    return np.concatenate(classes), np.concatenate(drawn)


def show_objects(bundle: Bundle, examples: Examples, count: int) -> Shown:
    """Up to `count` images at random with their objects; pairs for a network for pairs."""
    if bundle.manifest.mask_threshold is not None:
        size, shift_px = bundle.manifest.height, recipe_of(bundle).shift_px
        pairs = fixed_pairs(examples, count // 2, size=size, shift_px=shift_px, seed=_SEED)
        objects = pairs.object_images.reshape(-1, 1, size, size)
        return Shown(pairs.images, objects, pairs.labels)
    shown_in = objects_of(bundle.manifest.dataset, len(examples.labels))
    rows = draw_rows(examples.labels, count, seed=_SEED, objects=shown_in)
    images, labels = take(examples, rows)
    return Shown(images, images, labels[:, None])


def draw_explained(
    rows: dict[str, Floats], labels: NDArray[np.int64], shape: tuple[int, ...], target: Path
) -> None:
    """Draw images of all classes in rows (N, P): as seen, and as each code draws them.

    Args:
        labels: of the images, (N,).
        shape: of one image, (C, H, W).
    """
    order = np.argsort(labels, kind="stable")
    columns = min(_COLUMNS, len(order))
    chosen = order[np.linspace(0, len(order) - 1, columns).round().astype(int)]
    figure, axes = make_axes(len(rows), columns, image=True)
    for row, (title, images) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(title, fontsize="small")
        for axis, image in zip(row, images[chosen], strict=True):
            show(axis, image.reshape(shape))
    save(figure, target, 128)


def _class_means(images: Floats, labels: NDArray[np.int64], classes: int) -> Floats:
    """The mean image (K, P) of each class; of one without images, that of all."""
    means = np.tile(images.mean(axis=0), (classes, 1))
    for label in np.unique(labels):
        means[label] = images[labels == label].mean(axis=0)
    return means


def _flat(images: Floats) -> Floats:
    return np.ascontiguousarray(images.reshape(len(images), -1))
