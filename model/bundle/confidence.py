"""The calibration of a bundle: from the presence of classes to a probability and a set of labels.

`training.confidence` fits it; `/classify?coverage=` uses it. Axes: N images, K classes.

With z the presence (or its logarithm, where presence is a probability already), the scores of
classes are p = softmax(T z) (Guo et al. 2017, "On Calibration of Modern Neural Networks", section
4.2). The probability of the most probable label is p of that label, or what isotonic regression
makes of it (Zadrozny and Elkan 2002).

A set of labels has every class whose p reaches a threshold, as in Sadinle, Lei and
Wasserman (2019). The threshold is that of split conformal prediction (Vovk 2005; Angelopoulos and
Bates 2021, section 1).
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.entry import ENTRY, Count, Share, check_rising

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Method = Literal["temperature", "isotonic"]
Input = Literal["presence", "log-presence"]
COVERAGES = (*(round(0.5 + step / 100, 2) for step in range(50)), 0.995, 0.999)
"""The coverages for which a bundle has thresholds."""
_MIN_PRESENCE = 1e-12
"""The least presence whose logarithm is taken."""


@dataclass(frozen=True, config=ENTRY)
class Confidence:
    """The calibration of one bundle."""

    images: str
    """The images that it was fitted on, in words."""
    count: Count
    """The number of those images."""
    input: Input
    """What the temperature multiplies."""
    temperature: Annotated[float, Field(gt=0)]
    """T, which multiplies presence before the softmax."""
    method: Method
    """The method that gives the probability."""
    coverages: Annotated[tuple[Share, ...], Field(min_length=1)]
    """The coverages for which there are thresholds, rising."""
    thresholds: Annotated[tuple[tuple[Share, ...], ...], Field(min_length=1)]
    """The least p of a label in a set, for each coverage: of all classes, or of each."""
    counts: tuple[int, ...] = ()
    """The number of images that each row of thresholds was fitted on."""
    scores: tuple[float, ...] = ()
    """The p of the most probable label, rising, at which isotonic regression has a value."""
    probabilities: tuple[Share, ...] = ()
    """The probability at each of these; between them it is interpolated."""
    cross_validated: dict[str, Any] = field(default_factory=dict)
    """The measures of `training.confidence` on the same images, each of which was answered by a
    calibration of others; empty where test images are measured."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.scores) != len(self.probabilities) or (self.method == "isotonic") != bool(
            self.scores
        ):
            raise ValueError("isotonic calibrations, and only they, have as many scores as values")
        if {len(row) for row in self.thresholds} != {len(self.coverages)}:
            raise ValueError("the calibration needs a threshold for each coverage")
        falling = (row[::-1] for row in self.thresholds)
        check_rising(self.coverages, self.scores, self.probabilities, *falling)
        return self

    @property
    def per_class(self) -> bool:
        """Whether each class has thresholds of its own, because some classes are rare."""
        return len(self.thresholds) > 1

    def score_classes(self, presence: Floats) -> Doubles:
        """Compute the scores p (N, K) of presence (N, K): softmax(T z)."""
        return score_classes(presence, self.temperature, self.input)

    def find_probability(self, presence: Floats) -> Doubles:
        """Compute the probability (N,) that the most present class of (N, K) is the label."""
        highest: Doubles = self.score_classes(presence).max(axis=1)
        if self.method == "temperature":
            return highest
        probability: Doubles = np.interp(highest, self.scores, self.probabilities)
        return probability

    def find_labels(self, presence: Floats, coverage: float) -> NDArray[np.bool_]:
        """Find which labels (N, K) are in the sets of presence (N, K).

        The most probable label is always in the set. Of new images of the same kind, the share
        whose label is in its set is at least `coverage` on average.

        Raises:
            ValueError: there is no threshold for as high a coverage.
        """
        column = int(np.searchsorted(self.coverages, coverage - 1e-9))
        if column == len(self.coverages):
            raise ValueError(f"the highest coverage is {self.coverages[-1]:g}, not {coverage:g}")
        scores = self.score_classes(presence)
        least = np.array([row[column] for row in self.thresholds])  # (1,) or (K,)
        return np.asarray((scores >= least) | (scores == scores.max(axis=1, keepdims=True)))

    def is_top_label_alone(self, coverage: float) -> bool:
        """Whether every set of this coverage is the most probable label alone.

        No second label reaches a threshold of more than one half.
        """
        column = int(np.searchsorted(self.coverages, coverage - 1e-9))
        return min(row[column] for row in self.thresholds) > 0.5


def score_classes(presence: Floats, temperature: float, kind: Input) -> Doubles:
    """Compute softmax(T z), (N, K), with z the presence (N, K) or its logarithm."""
    exact = presence.astype(np.float64)
    logits = temperature * (np.log(exact.clip(_MIN_PRESENCE)) if kind == "log-presence" else exact)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
