"""Fit a bundle's calibration on images that its network has not learnt, and measure it.

Axes: N images, K classes.

- calibration error (ECE): the mean distance of probability and share of right answers over BINS
  bins of equal width, weighted by their images (Guo et al. 2017, equation 3), with a bootstrap
  interval over images;
- coverage of sets: the share of images whose label is in their set; size: the mean number of labels
  in a set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.confidence import COVERAGES, Confidence, Doubles, Input, score_classes
from training.answers import NO_CLASS, Answers
from training.data.datasets import draw_rows
from training.statistics import interval

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
REPORTED = (0.9, 0.95, 0.99)
"""The coverages whose sets are reported."""
BINS = 15
_RESAMPLES, _BOOTSTRAP_SEED = 1000, 11
Sets = Mapping[float, NDArray[np.bool_]]
"""Which labels (N, K) are in the sets of each coverage."""


def input_of(manifest: Manifest) -> Input:
    """What the temperature multiplies: presence, or its logarithm where it is a probability."""
    return "log-presence" if manifest.presence == "probability" else "presence"


def fit_confidence(answers: Answers, *, kind: Input, described: str = "") -> Confidence | None:
    """Fit a calibration; None of too few images, or of too few objects.

    One random half gives the temperature and the isotonic regression, the other the thresholds of
    split conformal prediction. Of temperature and isotonic regression, the probability comes from
    the one with the lower Brier score on the second half.

    Args:
        kind: what the temperature multiplies.
        described: the images, in words.
    """
    objects = answers.objects
    if len(answers.labels) < MIN_IMAGES:
        return None
    if objects is not None and len(np.unique(objects)) < MIN_OBJECTS:
        return None
    first, second = answers.halves(seed=_SEED)
    temperature = fit_temperature(first, kind)
    scores = score_classes(second.presence, temperature, kind)
    reached = scores[np.arange(len(second.labels)), second.labels]
    counts = np.bincount(second.labels, minlength=scores.shape[1])
    groups = [reached]
    if counts.min() < RARE * counts.mean():
        groups = [reached[second.labels == label] for label in range(len(counts))]
    fitted = Confidence(
        images=described,
        count=len(answers.labels),
        input=kind,
        temperature=temperature,
        method="temperature",
        coverages=COVERAGES,
        thresholds=tuple(find_thresholds(group) for group in groups),
        counts=tuple(map(len, groups)),
    )
    candidates = [fitted, *_with_isotonic(fitted, first)]
    return min(candidates, key=lambda candidate: _brier(candidate, second))


def cross_validate(answers: Answers, *, kind: Input) -> dict[str, Any]:
    """Measure calibrations on images that each of them has not seen: see `measure_probabilities`.

    Nothing of fewer images than FOLDS calibrations need.
    """
    labels = answers.labels
    order = draw_rows(labels, len(labels), seed=_SEED)
    probability = np.zeros(len(labels))
    sets = {coverage: np.zeros(answers.presence.shape, np.bool_) for coverage in REPORTED}
    for number in range(FOLDS):
        fold = order[number::FOLDS]
        fitted = fit_confidence(answers.at(np.setdiff1d(order, fold)), kind=kind)
        if fitted is None or not len(fold):
            return {}
        probability[fold] = fitted.find_probability(answers.presence[fold])
        for coverage, chosen in sets.items():
            chosen[fold] = fitted.find_labels(answers.presence[fold], coverage)
    return measure_probabilities(probability, sets, answers)


def fit_temperature(answers: Answers, kind: Input) -> float:
    """Find the temperature, from 0.05 to 500, with the lowest log loss of the probable labels."""
    target = _soften(answers.first == answers.labels)

    def loss(logarithm: float) -> float:
        highest = score_classes(answers.presence, math.exp(logarithm), kind).max(axis=1)
        highest = highest.clip(1e-12, 1 - 1e-12)
        return float(-(target * np.log(highest) + (1 - target) * np.log1p(-highest)).mean())

    bounds = (math.log(0.05), math.log(500))
    return math.exp(float(scipy.optimize.minimize_scalar(loss, bounds=bounds, method="bounded").x))


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


def _with_isotonic(fitted: Confidence, answers: Answers) -> list[Confidence]:
    """The calibration with isotonic regression, if there are enough images and wrong answers."""
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415  scikit-learn takes a second

    right = answers.first == answers.labels
    if len(right) < MIN_ISOTONIC or (~right).sum() < MIN_WRONG:
        return []
    highest = fitted.score_classes(answers.presence).max(axis=1)
    regression = IsotonicRegression().fit(highest, _soften(right))
    values = (regression.X_thresholds_.tolist(), regression.y_thresholds_.tolist())
    scores, probabilities = map(tuple, values)
    return [replace(fitted, method="isotonic", scores=scores, probabilities=probabilities)]


def _brier(fitted: Confidence, answers: Answers) -> float:
    right = answers.first == answers.labels
    return float(np.square(fitted.find_probability(answers.presence) - right).mean())


def measure_images(confidence: Confidence, answers: Answers) -> dict[str, Any]:
    """Measure a calibration on answers; only sizes of sets where images show no class."""
    sets = {coverage: confidence.find_labels(answers.presence, coverage) for coverage in REPORTED}
    return measure_probabilities(confidence.find_probability(answers.presence), sets, answers)


def measure_probabilities(probability: Doubles, sets: Sets, answers: Answers) -> dict[str, Any]:
    """Measure the probabilities (N,) of answers, and sets of labels."""
    labels = None if (answers.labels == NO_CLASS).any() else answers.labels
    measures: dict[str, Any] = {
        "images": len(probability),
        "mean_probability": _rounded(probability.mean()),
        "sets": {
            f"{coverage:g}": describe_sets(chosen, labels) for coverage, chosen in sets.items()
        },
    }
    if labels is None:
        return measures
    right = answers.first == labels
    return measures | {
        "error_percent": _rounded(100 * (~right).mean()),
        "calibration_error": _rounded(calibration_error(probability, right)),
        "calibration_error_interval": [*map(_rounded, bootstrap(probability, right))],
        "bins": describe_bins(probability, right),
    }


def calibration_error(probability: Doubles, right: NDArray[np.bool_]) -> float:
    """The calibration error of probabilities (N,) of answers that are right or wrong (N,)."""
    gaps = np.bincount(_bins(probability), probability - right, BINS)
    return float(np.abs(gaps).sum() / len(right))


def bootstrap(probability: Doubles, right: NDArray[np.bool_]) -> tuple[float, float]:
    """The 95 % interval of the calibration error, if other images were drawn.

    Chance moves every bin a little, so a few images always show some error. The errors of resamples
    contain this excess twice. The basic bootstrap interval subtracts it: its ends are twice the
    measured error minus a quantile of the errors of resamples, and at least zero (Davison and
    Hinkley 1997, section 5.2).
    """
    found = scipy.stats.bootstrap(
        (probability, right),
        calibration_error,
        paired=True,
        vectorized=False,
        n_resamples=_RESAMPLES,
        batch=_RESAMPLES // 10,
        method="basic",
        random_state=np.random.default_rng(_BOOTSTRAP_SEED),
    )
    low, high = found.confidence_interval
    return max(0.0, float(low)), max(0.0, float(high))


def describe_bins(probability: Doubles, right: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Count, mean probability and share of right answers of the bins that hold images."""
    bins = _bins(probability)
    return [
        {
            "images": int(inside.sum()),
            "probability": _rounded(probability[inside].mean()),
            "right": _rounded(right[inside].mean()),
        }
        for inside in (bins == number for number in range(BINS))
        if inside.any()
    ]


def describe_sets(
    chosen: NDArray[np.bool_], labels: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Size, share of single labels and, where labels (N,) are known, coverage of sets (N, K)."""
    sizes = chosen.sum(axis=1)
    described: dict[str, Any] = {
        "mean_size": _rounded(sizes.mean()),
        "single_percent": _rounded(100 * (sizes == 1).mean()),
    }
    if labels is not None:
        held = chosen[np.arange(len(labels)), labels]
        described["coverage"] = _rounded(held.mean())
        low, high = interval(int(held.sum()), len(held))
        described["coverage_interval"] = [_rounded(low / 100), _rounded(high / 100)]
    return described


def scores_of(manifest: Manifest) -> Mapping[str, Mapping[str, Any]]:
    """The measures of a bundle's calibration by kind of images; none where it has none."""
    if manifest.confidence is None:
        return {}
    if measured := manifest.metrics.get("confidence"):
        return dict(measured)
    held_out = manifest.confidence.cross_validated
    return {"held-out images, cross-validated": held_out} if held_out else {}


def coverage_range(count: int, coverage: float) -> tuple[float, float] | None:
    """The coverage, over new images, that 95 % of calibrations reach with thresholds of `count`.

    It has a beta distribution (Vovk 2012; Angelopoulos and Bates 2021, section 3.2). None if so few
    images only promise the set of all labels.
    """
    rank = math.ceil((count + 1) * coverage - 1e-9)
    if rank > count:
        return None
    low, high = scipy.stats.beta.interval(0.95, rank, count + 1 - rank)
    return float(low), float(high)


def _bins(probability: Doubles) -> NDArray[np.int64]:
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 5)
