"""Choose a bundle's training images for `/neighbours`, whiten their poses, and find prototypes."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from model.bundle import Bundle
from model.bundle.poses import (
    MAX_SHEET_PIXELS,
    PROTOTYPES,
    NeighbourImages,
    PoseGallery,
)
from model.canvas import draw_sheet
from model.preprocess import Floats
from training.answers import Answers, is_wrong
from training.data.datasets import rank_in_class
from training.novelty import fit_classes, whiten

COUNT = 1000
"""The number of poses in a bundle, the same of each class; fewer of large images."""
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]


def collect(bundle: Bundle, answers: Answers, *, licence: str, source: str) -> NeighbourImages:
    """Whiten the poses of images, and choose those that `/neighbours` compares with.

    Images that the network answers wrongly are taken last: the pose of a class that it does not see
    says nothing.

    Args:
        bundle: of a network with poses.
        licence: of the images; empty leaves the images out and keeps their poses.
        source: of the images, in words.
    """
    classes, labels = bundle.manifest.num_classes, answers.labels.reshape(len(answers.labels), -1)
    poses = np.take_along_axis(answers.poses, labels[..., None], axis=1)  # (N, L, D)
    _, height, width = bundle.manifest.image_shape
    side = math.isqrt(MAX_SHEET_PIXELS // (height * width))  # a square of so many images
    count = min(COUNT, side**2) if licence else COUNT
    chosen = choose(labels, ~is_wrong(answers.presence, labels), classes=classes, count=count)
    sheet = draw_sheet(answers.images[chosen]) if licence else b""
    each = labels.shape[1]
    whitening = fit_all(poses.reshape(-1, poses.shape[-1]), labels.ravel(), classes)
    gallery = make_gallery(
        poses=poses[chosen].reshape(len(chosen) * each, -1).astype(np.float16),
        labels=labels[chosen].ravel().astype(np.uint16),
        images=np.arange(len(chosen), dtype=np.uint16).repeat(each),
        whitening=whitening.astype(np.float16),
        sheet=np.frombuffer(sheet, np.uint8),
    )
    kind = "pairs of training digits" if each > 1 else "training images"
    images = f"{len(chosen):,} {kind}"
    return NeighbourImages(images=images, licence=licence, source=source, gallery=gallery)


def choose(labels: Rows, right: NDArray[np.bool_], *, classes: int, count: int) -> Rows:
    """Choose rows of images with up to `count` objects, as many of each class.

    Wrong answers come last. Of pairs, the classes of the first digits have equal shares.

    Args:
        labels: (N, L).
        right: (N,).
    """
    quota = max(1, count // classes // labels.shape[1])
    order = np.argsort(~right, kind="stable")
    return np.asarray(order[rank_in_class(labels[order, 0]) < quota])


def make_gallery(
    poses: NDArray[np.float16],
    labels: NDArray[np.integer],
    images: NDArray[np.integer],
    whitening: NDArray[np.float16],
    sheet: NDArray[np.uint8],
) -> PoseGallery:
    """A gallery of these arrays, with the prototypes of its classes: see `PoseGallery`."""
    classes = len(whitening)
    chosen = np.full((classes, PROTOTYPES), -1, np.int16)
    shares = np.zeros((classes, PROTOTYPES), np.float32)
    typical = np.zeros(classes, np.float32)
    for label in np.unique(labels).tolist():
        white = poses[labels == label].astype(np.float64) @ whitening[label].astype(np.float64)
        rows, shares_of_rows = find_prototypes(white, PROTOTYPES)
        chosen[label, : len(rows)], shares[label, : len(rows)] = rows, shares_of_rows
        if len(white) > 1:
            typical[label] = np.median(
                np.partition(scipy.spatial.distance.cdist(white, white), 1, axis=1)[:, 1]
            )
    return PoseGallery(poses, labels, images, whitening, sheet, chosen, shares, typical)


def find_prototypes(poses: Doubles, count: int) -> tuple[Rows, Doubles]:
    """Find at most `count` prototypes of a class: the poses (N, D) next to the centres of k-means.

    Returns:
        the rows (M,) of the prototypes, that of the largest group first, and the shares (M,) of the
        poses to which they are the nearest.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415  scikit-learn takes a second

    most = min(count, len(np.unique(poses, axis=0)))
    centres = KMeans(most, n_init=10, random_state=0).fit(poses).cluster_centers_
    rows = np.unique(scipy.spatial.distance.cdist(centres, poses).argmin(axis=1))
    groups = scipy.spatial.distance.cdist(poses[rows], poses).argmin(axis=0)
    shares = np.bincount(groups, minlength=len(rows)) / len(poses)
    order = np.argsort(-shares, kind="stable")
    return rows[order], shares[order]


def fit_all(poses: Floats, labels: Rows, classes: int) -> Doubles:
    """The whitening (K, D, D) of each class of poses (N, D) with labels (N,)."""
    _, within = fit_classes(poses, labels, classes)
    return np.stack([fit_whitening(poses[labels == label], within) for label in range(classes)])


def fit_whitening(poses: Floats, others: Doubles) -> Doubles:
    """Return W (D, D), with W W^T the inverse of the covariance of one class's poses (N, D).

    Few poses give a poor estimate, so the covariance is mixed with that of all classes, which
    weighs as much as D poses. No direction has less than a thousandth of the mean variance.

    Args:
        others: (D, D), the mean covariance within all classes.
    """
    count, dim = poses.shape
    own = np.cov(poses.astype(np.float64), rowvar=False, bias=True) if count > 1 else others
    mixed = (count * own + dim * others) / (count + dim)
    return whiten(mixed)
