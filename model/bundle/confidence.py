"""The calibration of a bundle: from the presence of classes to a probability and a set of labels.

`training.analysis.confidence` fits it; `/classify?coverage=` uses it. Axes: N images, K classes.

With z the presence (or its logarithm, where presence is a probability already), the scores of
classes are p = softmax(T z) (Guo et al. 2017, "On Calibration of Modern Neural Networks", section
4.2). The probability of the most probable label is p of that label, or what isotonic regression
makes of it (Zadrozny and Elkan 2002).

A set of labels has every class whose p reaches a threshold: the classifier that is the least
ambiguous for a coverage (Sadinle, Lei and Wasserman 2019), with the threshold of split conformal
prediction (Vovk 2005; Angelopoulos and Bates 2021, section 1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Method = Literal["temperature", "isotonic"]
Input = Literal["presence", "log-presence"]
COVERAGES = (*(round(0.5 + step / 100, 2) for step in range(50)), 0.995, 0.999)
"""The coverages for which a bundle has thresholds."""
_MIN_PRESENCE = 1e-12
"""The least presence whose logarithm is taken."""


@dataclass(frozen=True)
class Confidence:
    """The calibration of one bundle.

    Raises:
        ValueError: the tables do not go together, do not rise, or a number is out of range.
    """

    images: str
    """The images that it was fitted on, in words."""
    count: int
    """The number of those images."""
    input: Input
    """What the temperature multiplies."""
    temperature: float
    """T, which multiplies presence before the softmax."""
    method: Method
    """The method that gives the probability."""
    coverages: tuple[float, ...]
    """The coverages for which there are thresholds, rising."""
    thresholds: tuple[tuple[float, ...], ...]
    """The least p of a label in a set, for each coverage: of all classes, or of each."""
    scores: tuple[float, ...] = ()
    """The p of the most probable label, rising, at which isotonic regression has a value."""
    probabilities: tuple[float, ...] = ()
    """The probability at each of these; between them it is interpolated."""
    cross_validated: dict[str, Any] = field(default_factory=dict)
    """The measures of `training.reliability` on the same images, each of which was
    answered by a calibration of the others."""

    def __post_init__(self) -> None:
        if self.method not in get_args(Method) or self.input not in get_args(Input):
            raise ValueError("the calibration has an unknown method or input")
        if not (np.isfinite(self.temperature) and self.temperature > 0 and self.count > 0):
            raise ValueError("the temperature and the count of a calibration are positive")
        if len(self.scores) != len(self.probabilities) or (self.method == "isotonic") != bool(
            self.scores
        ):
            raise ValueError("isotonic calibrations, and only they, have as many scores as values")
        widths = {len(row) for row in self.thresholds}
        if widths != {len(self.coverages)} or not self.coverages:
            raise ValueError("the calibration needs a threshold for each coverage")
        rising = [self.coverages, self.scores, self.probabilities]
        rising += [row[::-1] for row in self.thresholds]
        if not all(np.all(np.diff(table) >= 0) for table in rising):
            raise ValueError("a table of the calibration does not rise")
        within = np.concatenate([np.ravel(self.thresholds), self.probabilities, self.coverages])
        if not ((within >= 0) & (within <= 1)).all():
            raise ValueError("a share of the calibration is out of range")

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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` gave, JSON's lists for tuples.

        Raises:
            ValueError, TypeError: a key is unknown or missing, or a value out of range.
        """
        if not isinstance(values, dict):
            raise TypeError("the calibration is an object")
        return cls(**{key: _as_tuple(value) for key, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return asdict(self)


def score_classes(presence: Floats, temperature: float, kind: Input) -> Doubles:
    """Compute softmax(T z), (N, K), with z the presence (N, K) or its logarithm."""
    exact = presence.astype(np.float64)
    logits = temperature * (np.log(exact.clip(_MIN_PRESENCE)) if kind == "log-presence" else exact)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
