"""Directions of a pose: each changes one thing about the drawing, by a known amount.

They are fitted by training (`training.analysis.directions`) and used by the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.entry import ENTRY, Share, check_rising

RANKS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""The ranks of `Direction.quantiles`."""
GOT = (0.8, 1.2)
"""A direction is offered if asking for one unit gives this much of it, on average,"""
SAME_WAY = 0.95
"""moves this share of the drawings the same way,"""
LARGEST_OTHER = 0.3
"""and moves every other measure by less than this many of its standard deviations."""
REACH, LEAST_REACH = 2.0, 0.4
"""A slider moves a pose by at most, and at least, this many standard deviations each way."""
READABLE = 0.3
"""A pose is read if its reading explains this share of the values' variance."""


@dataclass(frozen=True, kw_only=True, config=ENTRY)
class Quality:
    """How well a direction does what it says, measured on images that had no part in the fit.

    A change of one standard deviation was asked for.
    """

    got: float
    """The mean change that was measured, for one that was asked for."""
    spread: float
    """The standard deviation of that over the images."""
    same_way: Share
    """The share of the images whose drawing moved the way that was asked for."""
    largest_other: float
    """The largest mean change of another measure, in its standard deviations."""


@dataclass(frozen=True, kw_only=True, config=ENTRY)
class Reading:
    """A linear function of a pose that says what its image looks like."""

    intercept: float
    weights: tuple[float, ...]
    """(D,)."""
    r2: Annotated[float, Field(le=1)]
    """The share of the values' variance that it explains, on images outside the fit."""
    mean_error: Annotated[float, Field(ge=0)]
    """The mean absolute error, on the same images, in the direction's unit."""


@dataclass(frozen=True, kw_only=True, config=ENTRY)
class Direction:
    """One direction of one class's pose."""

    label: Annotated[int, Field(ge=0)]
    """The label of the class whose pose this is."""
    name: Annotated[str, Field(min_length=1, max_length=64)]
    unit: str
    """`px`, `degrees`, the unit of a factor; `sd` for principal directions, and may be empty."""
    vector: tuple[float, ...]
    """(D,), the change of the pose for one unit."""
    std: Annotated[float, Field(gt=0)]
    """The standard deviation of the drawings of the class."""
    quantiles: tuple[float, ...]
    """What is read from images of the class, at RANKS."""
    quality: Quality
    reading: Reading
    offset: float = 0.0
    """The mean by which the measure of a drawing exceeds that of its image."""
    share: Share | None = None
    """The share of the drawing's change that a principal direction makes; else None."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if len(self.vector) != len(self.reading.weights):
            raise ValueError("vector and reading are of different poses")
        if len(self.quantiles) != len(RANKS):
            raise ValueError(f"there are {len(RANKS)} quantiles")
        check_rising(self.quantiles)
        return self

    @property
    def offered(self) -> bool:
        """Whether the direction does what it says, and little else."""
        quality = self.quality
        return (
            GOT[0] <= quality.got <= GOT[1]
            and quality.same_way >= SAME_WAY
            and quality.largest_other <= LARGEST_OTHER
        )

    @property
    def readable(self) -> bool:
        """Whether the pose says this of its image."""
        return self.share is None and self.reading.r2 >= READABLE

    @property
    def low(self) -> float:
        """What 5 % of the class's images stay below."""
        return self.quantiles[0]

    @property
    def high(self) -> float:
        """What 95 % of the class's images stay below."""
        return self.quantiles[-1]

    def read(self, pose: NDArray[np.floating]) -> float:
        """Read the value of the image from its pose (D,)."""
        return float(np.dot(pose, self.reading.weights) + self.reading.intercept)

    def ends(self, pose: NDArray[np.floating]) -> tuple[float, float]:
        """The lowest and the highest value that a slider asks of a pose (D,).

        They are within the range of the class, and within REACH of the value that is read.
        A pose at an end of the range moves on by a little, so that there is something to see.
        """
        value, least, most = self.read(pose), LEAST_REACH * self.std, REACH * self.std
        down, up = self.low - value, self.high - value
        return value + float(np.clip(down, -most, -least)), value + float(np.clip(up, least, most))

    def percentile(self, value: float) -> float:
        """The percentage of the class's images with a lower value, from 5 to 95."""
        return 100 * float(np.interp(value, self.quantiles, RANKS))


def summarise_directions(directions: Sequence[Direction]) -> list[dict[str, Any]]:
    """What is offered by name: the classes, the range over all of them, and the mean quality."""
    offered: dict[str, list[Direction]] = {}
    for one in directions:
        if one.offered:
            offered.setdefault(one.name, []).append(one)
    return [
        {
            "name": name,
            "unit": found[0].unit,
            "labels": [one.label for one in found],
            "low": min(one.low for one in found),
            "high": max(one.high for one in found),
            "got": round(fmean(one.quality.got for one in found), 4),
            "same_way": round(fmean(one.quality.same_way for one in found), 4),
            "largest_other": max(one.quality.largest_other for one in found),
            "r2": round(fmean(one.reading.r2 for one in found), 4),
            "mean_error": round(fmean(one.reading.mean_error for one in found), 4),
        }
        for name, found in offered.items()
    ]
