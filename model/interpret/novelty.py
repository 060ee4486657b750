"""Novelty: how unlike the training images an image is, by a rule fitted on those alone.

Four features of each image are compared with those of the last training images:

- length: of the longest capsule;
- margin: longest minus second longest;
- error: |x - y|^2 / (|x|^2 + 1), how much of image x the reconstruction y of its longest capsule
  misses;
- distance: Mahalanobis distance of the poses of all classes from those of training images of the
  most present class (Lee et al. 2018, "A Simple Unified Framework for Detecting Out-of-Distribution
  Samples and Adversarial Attacks", equation 2, on poses in place of a hidden layer).

The rank of a feature, a conformal p-value, is the share of the training images that are at least
as unusual in it (shorter, narrower, worse reconstructed, further away). An image is novel if its
lowest rank is below a threshold that 95 % of the training images reach. Its novelty score is one
minus that rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Features(NamedTuple):
    """The features of N images, (N,) each; no distance where the rule goes without."""

    length: Floats
    margin: Floats
    error: Floats
    distance: Floats | None = None


class Ranks(NamedTuple):
    """For each feature the share of the training images at least as unusual, (N,) each."""

    length: NDArray[np.float64]
    margin: NDArray[np.float64]
    error: NDArray[np.float64]
    distance: NDArray[np.float64] | None = None

    @property
    def lowest(self) -> NDArray[np.float64]:
        """(N,): the lowest of them."""
        return np.asarray(np.min([rank for rank in self if rank is not None], axis=0))


class Novelty(NamedTuple):
    """How unusual one image is, beside the training images."""

    novel: bool
    score: float
    """The highest of the next four, from 0 to 1."""
    length_score: float
    """Share of the training images that are less unusual in this feature; so are the next three."""
    margin_score: float
    error_score: float
    distance_score: float | None
    error: float
    """Share of the image that the reconstruction of its longest capsule misses."""


@dataclass(frozen=True, eq=False)
class PoseGaussians:
    """The poses of training images: for each class a Gaussian, all with the same covariance.

    Raises:
        ValueError: the sizes of the arrays do not go together, or a number is not finite.
    """

    means: Floats
    """(K, K * D): for each most present class the mean poses of all classes."""
    whitening: NDArray[np.float16]
    """(K * D, K * D): W, with W W^T the inverse of the covariance, up to a factor."""

    def __post_init__(self) -> None:
        if self.means.ndim != 2 or self.whitening.shape != (self.means.shape[1],) * 2:
            raise ValueError("means (K, K * D) and whitening (K * D, K * D) do not go together")
        if not (np.isfinite(self.means).all() and np.isfinite(self.whitening).all()):
            raise ValueError("a number is not finite")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                means, whitening = arrays["means"], arrays["whitening"]
        except (BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
            raise ValueError("it is no .npz file of means and whitening") from error
        return cls(means, whitening)

    def save(self, file: BinaryIO) -> None:
        """Write an .npz file."""
        np.savez_compressed(file, means=self.means, whitening=self.whitening)

    def measure_distances(self, presence: Floats, poses: Floats) -> Floats:
        """Mahalanobis distances (N,), up to a factor, of poses (N, K, D) with presence (N, K)."""
        away = flatten_poses(presence, poses) - self.means[presence.argmax(axis=1)]
        return np.asarray(np.linalg.norm(away @ self.whitening, axis=1))


@dataclass(frozen=True)
class NoveltyRule:
    """The rule of one bundle: quantiles of each feature, and the threshold of the lowest rank.

    Raises:
        ValueError: the tables are not of one size, do not rise, or the threshold is out of range.
    """

    quantiles: tuple[float, ...]
    """Rising from 0 to 1."""
    length: tuple[float, ...]
    """The feature's value at each quantile; so are the next two, and `distance`."""
    margin: tuple[float, ...]
    error: tuple[float, ...]
    threshold: float
    """An image is novel if its lowest rank is below."""
    images: str
    """Which images the rule was fitted on."""
    others: tuple[dict[str, float | int | str], ...] = ()
    """How it fares on images of other kinds: kind, images, auc, known_percent."""
    distance: tuple[float, ...] = ()
    """Empty where the rule goes without; elsewhere the bundle has a file of `gaussians`."""
    gaussians: PoseGaussians | None = field(default=None, compare=False, repr=False)
    """From which distances are measured; not in the manifest."""

    def __post_init__(self) -> None:
        tables = [self.quantiles, self.length, self.margin, self.error]
        tables += [self.distance] if self.distance else []
        if len({len(table) for table in tables}) > 1 or len(self.quantiles) < 2:
            raise ValueError("the tables of the novelty rule differ in size")
        if any(np.any(np.diff(table) < 0) for table in tables):
            raise ValueError("a table of the novelty rule does not rise")
        if self.gaussians and not self.distance:
            raise ValueError("the novelty rule has no table of distances")
        if not 0 <= self.threshold <= 1:
            raise ValueError("the threshold of the novelty rule is out of range")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` gave, JSON's lists for tuples.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("the novelty rule is an object")
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})

    def to_dict(self) -> dict[str, Any]:
        """What the manifest holds: all but the Gaussians."""
        values = asdict(replace(self, gaussians=None))
        del values["gaussians"]
        return values

    def rank(self, features: Features) -> Ranks:
        """Compare images with the training images."""
        far = features.distance
        return Ranks(
            length=np.interp(features.length, self.length, self.quantiles),
            margin=np.interp(features.margin, self.margin, self.quantiles),
            error=1 - np.interp(features.error, self.error, self.quantiles),
            distance=None if far is None else 1 - np.interp(far, self.distance, self.quantiles),
        )

    def judge(self, features: Features) -> list[Novelty]:
        """Compare images with the training images, one by one, rounded to six digits."""
        ranks = self.rank(features)
        novel = (ranks.lowest < self.threshold).tolist()
        scores = (
            [None] * len(novel) if rank is None else (1 - rank).round(6).tolist()
            for rank in (ranks.lowest, *ranks)
        )
        return list(map(Novelty, novel, *scores, features.error.astype(float).round(6).tolist()))


def measure_features(
    presence: Floats, poses: Floats, images: Floats, drawn: Floats, gaussians: PoseGaussians | None
) -> Features:
    """The features of N images.

    Args:
        presence: (N, K) of all class capsules.
        poses: (N, K, D), likewise.
        images: (N, C, H, W) as the network saw them.
        drawn: (N, C, H, W), the decoded poses of the longest capsules.
        gaussians: from which distances are measured, if they are.
    """
    second, first = np.partition(presence, -2, axis=1)[:, -2:].T
    missed = np.square(images - drawn).sum(axis=(1, 2, 3))
    error = missed / (np.square(images).sum(axis=(1, 2, 3)) + 1)
    distance = gaussians.measure_distances(presence, poses) if gaussians else None
    return Features(first, first - second, error, distance)


def flatten_poses(presence: Floats, poses: Floats) -> Floats:
    """Poses (N, K, D) of all classes as (N, K * D), each as long as its class is present.

    That changes matrix capsules alone, whose poses do not tell how present they are.
    """
    sizes = np.linalg.norm(poses, axis=2)
    scaled = poses * (presence / np.maximum(sizes, np.finfo(np.float32).tiny))[..., None]
    return np.asarray(scaled.reshape(len(poses), -1))


def tabulate(values: NDArray[np.floating], quantiles: Sequence[float]) -> tuple[float, ...]:
    """The values at some quantiles, rounded to six digits."""
    return tuple(float(f"{value:.6g}") for value in np.quantile(values, quantiles))
