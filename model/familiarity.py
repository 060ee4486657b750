"""How much a picture looks like those that the network knows, judged by rules from those alone.

Three signs of each picture are compared with the same signs of held-out training pictures:

- length: of the longest capsule;
- margin: longest minus second longest;
- error: |x - y|^2 / (|x|^2 + 1), how much of picture x the drawing y of its longest capsule misses,
  as a share of its ink.

The rank of a sign is the share of the known pictures that are at least as odd in it (shorter,
narrower, worse drawn). A picture's score is its lowest rank, and it is known where the score
reaches a threshold that 99 % of the known pictures reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Signs(NamedTuple):
    """The three signs of N pictures, (N,) each."""

    length: Floats
    margin: Floats
    error: Floats


class Ranks(NamedTuple):
    """For each sign the share of the known pictures that are at least as odd, (N,) each."""

    length: NDArray[np.float64]
    margin: NDArray[np.float64]
    error: NDArray[np.float64]

    @property
    def score(self) -> NDArray[np.float64]:
        """(N,): the lowest of the three."""
        return np.minimum(np.minimum(self.length, self.margin), self.error)


@dataclass(frozen=True)
class Familiarity:
    """The rule of one bundle: quantiles of each sign, and the threshold of the score.

    Raises:
        ValueError: the tables are not of one size, do not rise, or the threshold is out of range.
    """

    quantiles: tuple[float, ...]
    """Rising from 0 to 1."""
    length: tuple[float, ...]
    """The sign's value at each quantile; so are `margin` and `error`."""
    margin: tuple[float, ...]
    error: tuple[float, ...]
    threshold: float
    """The lowest score of a known picture."""
    pictures: str
    """Which pictures the rule was fitted on."""
    strangers: tuple[dict[str, float | int | str], ...] = ()
    """How it fares on pictures of other kinds: kind, images, auc, known_percent."""

    def __post_init__(self) -> None:
        tables = (self.quantiles, self.length, self.margin, self.error)
        if len({len(table) for table in tables}) > 1 or len(self.quantiles) < 2:
            raise ValueError("the tables of familiarity differ in size")
        if any(np.any(np.diff(table) < 0) for table in tables):
            raise ValueError("a table of familiarity does not rise")
        if not 0 <= self.threshold <= 1:
            raise ValueError("the threshold of familiarity is out of range")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` wrote, JSON's lists for tuples.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("the rule of familiarity is an object")
        tuples = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **tuples})

    def rank(self, signs: Signs) -> Ranks:
        """Compare pictures with the known ones."""
        return Ranks(
            length=np.interp(signs.length, self.length, self.quantiles),
            margin=np.interp(signs.margin, self.margin, self.quantiles),
            error=1 - np.interp(signs.error, self.error, self.quantiles),
        )


def read_signs(lengths: Floats, images: Floats, drawn: Floats) -> Signs:
    """The signs of N pictures.

    Args:
        lengths: (N, K) of all class capsules.
        images: (N, 1, H, W) as the network saw them.
        drawn: (N, 1, H, W), the decoded poses of the longest capsules.
    """
    second, first = np.partition(lengths, -2, axis=1)[:, -2:].T
    missed = np.square(images - drawn).sum(axis=(1, 2, 3))
    return Signs(first, first - second, missed / (np.square(images).sum(axis=(1, 2, 3)) + 1))


def tabulate(values: NDArray[np.floating], quantiles: Sequence[float]) -> tuple[float, ...]:
    """The values at some quantiles, rounded to six digits."""
    return tuple(float(f"{value:.6g}") for value in np.quantile(values, quantiles))
