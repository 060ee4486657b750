"""Novelty: how little an image looks like those of the training, by a rule fitted on those alone.

Three features of each image are compared with the same features of held-out training images:

- length: of the longest capsule;
- margin: longest minus second longest;
- error: |x - y|^2 / (|x|^2 + 1), how much of image x the reconstruction y of its longest capsule
  misses.

The rank of a feature is the share of the known images that are at least as odd in it (shorter,
narrower, worse reconstructed). An image's score is its lowest rank, and it is known where the score
reaches a threshold that 99 % of the known images reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Features(NamedTuple):
    """The three features of N images, (N,) each."""

    length: Floats
    margin: Floats
    error: Floats


class Ranks(NamedTuple):
    """For each feature the share of the known images that are at least as odd, (N,) each."""

    length: NDArray[np.float64]
    margin: NDArray[np.float64]
    error: NDArray[np.float64]

    @property
    def score(self) -> NDArray[np.float64]:
        """(N,): the lowest of the three."""
        return np.minimum(np.minimum(self.length, self.margin), self.error)


class Novelty(NamedTuple):
    """How one image compares with the known ones."""

    known: bool
    score: float
    """The lowest rank, from 0 to 1."""
    length_rank: float
    margin_rank: float
    error_rank: float
    error: float
    """Share of the image that the reconstruction of its longest capsule misses."""


@dataclass(frozen=True)
class NoveltyRule:
    """The rule of one bundle: quantiles of each feature, and the threshold of the score.

    Raises:
        ValueError: the tables are not of one size, do not rise, or the threshold is out of range.
    """

    quantiles: tuple[float, ...]
    """Rising from 0 to 1."""
    length: tuple[float, ...]
    """The feature's value at each quantile; so are `margin` and `error`."""
    margin: tuple[float, ...]
    error: tuple[float, ...]
    threshold: float
    """The lowest score of a known image."""
    images: str
    """Which images the rule was fitted on."""
    others: tuple[dict[str, float | int | str], ...] = ()
    """How it fares on images of other kinds: kind, images, auc, known_percent."""

    def __post_init__(self) -> None:
        tables = (self.quantiles, self.length, self.margin, self.error)
        if len({len(table) for table in tables}) > 1 or len(self.quantiles) < 2:
            raise ValueError("the tables of the novelty rule differ in size")
        if any(np.any(np.diff(table) < 0) for table in tables):
            raise ValueError("a table of the novelty rule does not rise")
        if not 0 <= self.threshold <= 1:
            raise ValueError("the threshold of the novelty rule is out of range")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote, JSON's lists for tuples.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("the novelty rule is an object")
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})

    def rank(self, features: Features) -> Ranks:
        """Compare images with the known ones."""
        return Ranks(
            length=np.interp(features.length, self.length, self.quantiles),
            margin=np.interp(features.margin, self.margin, self.quantiles),
            error=1 - np.interp(features.error, self.error, self.quantiles),
        )

    def judge(self, features: Features) -> list[Novelty]:
        """Compare images with the known ones, one by one, rounded to six digits."""
        ranks = self.rank(features)
        return [
            Novelty(bool(row[0] >= self.threshold), *(round(float(value), 6) for value in row))
            for row in zip(ranks.score, *ranks, features.error, strict=True)
        ]


def measure_features(presence: Floats, images: Floats, drawn: Floats) -> Features:
    """The features of N images.

    Args:
        presence: (N, K) of all class capsules.
        images: (N, C, H, W) as the network saw them.
        drawn: (N, C, H, W), the decoded poses of the longest capsules.
    """
    second, first = np.partition(presence, -2, axis=1)[:, -2:].T
    missed = np.square(images - drawn).sum(axis=(1, 2, 3))
    return Features(first, first - second, missed / (np.square(images).sum(axis=(1, 2, 3)) + 1))


def tabulate(values: NDArray[np.floating], quantiles: Sequence[float]) -> tuple[float, ...]:
    """The values at some quantiles, rounded to six digits."""
    return tuple(float(f"{value:.6g}") for value in np.quantile(values, quantiles))
