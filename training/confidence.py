"""Fit a bundle's calibration on labelled images that its network has not learnt."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from sklearn.isotonic import IsotonicRegression

from model.bundle import Manifest
from model.bundle.confidence import COVERAGES, Confidence, Doubles, Input, score_classes
from model.preprocess import Floats
from training.random_sample import draw_rows, split_rows
from training.reliability import REPORTED, measure

Labels = NDArray[np.int64]
MIN_IMAGES, MIN_OBJECTS = 4, 25
"""The fewest images of a calibration, and the fewest objects where images share them."""
MIN_ISOTONIC, MIN_WRONG = 100, 20
"""The fewest images, and wrong answers, from which isotonic regression is tried. If all answers are
right, isotonic regression gives every image the same probability, however low the presence is."""
RARE = 0.5
"""Classes are rare, so that each gets thresholds of its own, where one has fewer images than this
share of the mean."""
FOLDS = 5
"""The parts of the images of which each is measured by a calibration of the others."""
_SEED = 5


class Answered(NamedTuple):
    """Labelled images, and a network's answers to them."""

    presence: Floats
    """(N, K)."""
    labels: Labels
    """(N,)."""
    objects: Labels | None = None
    """Which object (N,) each image shows, if several show one."""

    def at(self, rows: Labels) -> Answered:
        """The answers to some of the images."""
        objects = None if self.objects is None else self.objects[rows]
        return Answered(self.presence[rows], self.labels[rows], objects)


def input_of(manifest: Manifest) -> Input:
    """What the temperature multiplies: presence, or its logarithm where it is a probability."""
    return "log-presence" if manifest.presence == "probability" else "presence"


def fit_confidence(answered: Answered, *, kind: Input, described: str = "") -> Confidence | None:
    """Fit a calibration; None of too few images, or of too few objects.

    One random half gives the temperature and the isotonic regression, the other the thresholds of
    split conformal prediction. Of temperature and isotonic regression, the probability comes from
    the one with the lower Brier score on the second half.

    Args:
        kind: what the temperature multiplies.
        described: the images, in words.
    """
    objects = answered.objects
    if len(answered.labels) < MIN_IMAGES:
        return None
    if objects is not None and len(np.unique(objects)) < MIN_OBJECTS:
        return None
    halves = split_rows(answered.labels, seed=_SEED, objects=objects)
    first, second = (answered.at(rows) for rows in halves)
    temperature = fit_temperature(first.presence, first.labels, kind)
    scores = score_classes(second.presence, temperature, kind)
    reached = scores[np.arange(len(second.labels)), second.labels]
    counts = np.bincount(second.labels, minlength=scores.shape[1])
    groups = [reached]
    if counts.min() < RARE * counts.mean():
        groups = [reached[second.labels == label] for label in range(len(counts))]
    fitted = Confidence(
        images=described,
        count=len(answered.labels),
        input=kind,
        temperature=temperature,
        method="temperature",
        coverages=COVERAGES,
        thresholds=tuple(find_thresholds(group) for group in groups),
        counts=tuple(map(len, groups)),
    )
    candidates = [fitted, *_with_isotonic(fitted, first)]
    return min(candidates, key=lambda candidate: _brier(candidate, second))


def cross_validate(answered: Answered, *, kind: Input) -> dict[str, Any]:
    """Measure calibrations on images that each of them has not seen: see `training.reliability`.

    Nothing of fewer images than FOLDS calibrations need.
    """
    labels = answered.labels
    order = draw_rows(labels, len(labels), seed=_SEED)
    probability = np.zeros(len(labels))
    sets = {coverage: np.zeros(answered.presence.shape, np.bool_) for coverage in REPORTED}
    for number in range(FOLDS):
        fold = order[number::FOLDS]
        fitted = fit_confidence(answered.at(np.setdiff1d(order, fold)), kind=kind)
        if fitted is None or not len(fold):
            return {}
        probability[fold] = fitted.find_probability(answered.presence[fold])
        for coverage, chosen in sets.items():
            chosen[fold] = fitted.find_labels(answered.presence[fold], coverage)
    return measure(probability, sets, answered.presence.argmax(axis=1) == labels, labels)


def fit_temperature(presence: Floats, labels: Labels, kind: Input) -> float:
    """Find the temperature, from 0.05 to 500, with the lowest log loss of the most probable label.

    Args:
        presence: (N, K).
        labels: (N,).
    """
    right = presence.argmax(axis=1) == labels
    target = _soften(right)

    def loss(logarithm: float) -> float:
        highest = score_classes(presence, math.exp(logarithm), kind).max(axis=1)
        highest = highest.clip(1e-12, 1 - 1e-12)
        return float(-(target * np.log(highest) + (1 - target) * np.log1p(-highest)).mean())

    bounds = (math.log(0.05), math.log(500))
    return math.exp(float(optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x))


def find_thresholds(scores: Doubles) -> tuple[float, ...]:
    """Find the least score of a label in a set, for each of COVERAGES.

    Args:
        scores: p (N,) of the labels of N images. The threshold for coverage c is the k-th highest
            of them, k = ceil((N + 1) c); zero, so that all labels are in the set, if k exceeds N.
    """
    descending, count = -np.sort(-scores), len(scores)
    ranks = [math.ceil((count + 1) * coverage - 1e-9) for coverage in COVERAGES]
    return tuple(float(descending[rank - 1]) if rank <= count else 0.0 for rank in ranks)


def _soften(right: NDArray[np.bool_]) -> Doubles:
    """Targets (N,) that are never certain (Platt 1999, section 2.2).

    (n + 1) / (n + 2) for each of n right answers, 1 / (m + 2) for each of m wrong ones.
    """
    correct = int(right.sum())
    return np.where(right, (correct + 1) / (correct + 2), 1 / (len(right) - correct + 2))


def _with_isotonic(fitted: Confidence, answered: Answered) -> list[Confidence]:
    """The calibration with isotonic regression, if there are enough images and wrong answers."""
    right = answered.presence.argmax(axis=1) == answered.labels
    if len(right) < MIN_ISOTONIC or (~right).sum() < MIN_WRONG:
        return []
    highest = fitted.score_classes(answered.presence).max(axis=1)
    regression = IsotonicRegression().fit(highest, _soften(right))
    values = (regression.X_thresholds_.tolist(), regression.y_thresholds_.tolist())
    scores, probabilities = map(tuple, values)
    return [replace(fitted, method="isotonic", scores=scores, probabilities=probabilities)]


def _brier(fitted: Confidence, answered: Answered) -> float:
    right = answered.presence.argmax(axis=1) == answered.labels
    return float(np.square(fitted.find_probability(answered.presence) - right).mean())
