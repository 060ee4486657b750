"""Whiten the poses of classes, and choose the prototypes of each class for `/neighbours`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle.neighbours import PROTOTYPES, PoseGallery
from model.preprocess import Floats

Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]


class Prototypes(NamedTuple):
    """The medoids of a class: training images that stand for others, the largest group first."""

    rows: Rows
    """The positions (M,) among all poses of the class."""
    shares: Doubles
    """The share of the class's images (M,) to which this medoid is the nearest."""


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
        distances = measure_all(
            poses[labels == label].astype(np.float32), whitening[label].astype(np.float32)
        )
        prototypes = find_prototypes(distances, PROTOTYPES)
        chosen[label, : len(prototypes.rows)] = prototypes.rows
        shares[label, : len(prototypes.rows)] = prototypes.shares
        typical[label] = typical_distance(distances)
    return PoseGallery(poses, labels, images, whitening, sheet, chosen, shares, typical)


def measure_all(poses: Floats, whitening: Floats) -> Doubles:
    """Measure the distances (N, N) between all whitened poses (N, D)."""
    white = poses.astype(np.float64) @ whitening.astype(np.float64)
    return np.asarray(np.linalg.norm(white[:, None] - white[None], axis=2))


def typical_distance(distances: Doubles) -> float:
    """The median, over N poses, of the distance to the nearest other one, from distances (N, N).

    It is zero if there is only one pose.
    """
    if len(distances) < 2:
        return 0.0
    return float(np.median((distances + np.diag([np.inf] * len(distances))).min(axis=1)))


def find_prototypes(distances: Doubles, count: int) -> Prototypes:
    """Find at most `count` medoids of poses with these distances (N, N).

    They are added one by one, each where it lowers the sum of the distances to the nearest medoid
    most (Kaufman and Rousseeuw 1990, "Finding Groups in Data", chapter 2: BUILD), and then
    exchanged for others of their groups while that lowers it further.
    """
    rows: list[int] = []
    nearest = np.full(len(distances), np.inf)
    for _ in range(min(count, len(distances))):
        sums = np.minimum(nearest[None], distances).sum(axis=1)
        sums[rows] = np.inf
        rows.append(int(sums.argmin()))
        nearest = np.minimum(nearest, distances[rows[-1]])
    total = np.inf
    while (lower := float(distances[rows].min(axis=0).sum())) < total - 1e-9:
        total = lower
        groups = distances[rows].argmin(axis=0)
        for index in range(len(rows)):
            members = np.flatnonzero(groups == index)
            if len(members):
                within = distances[np.ix_(members, members)].sum(axis=0)
                rows[index] = int(members[within.argmin()])
    groups = distances[rows].argmin(axis=0)
    shares = np.bincount(groups, minlength=len(rows)) / len(distances)
    order = np.argsort(-shares, kind="stable")
    return Prototypes(np.asarray(rows)[order], shares[order])


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
    ridge = 1e-3 * mixed.diagonal().mean() + 1e-12
    return np.asarray(np.linalg.inv(np.linalg.cholesky(mixed + ridge * np.eye(dim))).T)
