"""Measure how far probabilities and sets of labels can be trusted.

Axes: N images, K classes.

- calibration error (ECE): the mean distance of probability and share of right answers over BINS
  bins of equal width, weighted by their images (Guo et al. 2017, equation 3), with a bootstrap
  interval over images;
- risk: the share of wrong answers among the most probable share of the images ("coverage" there,
  Geifman and El-Yaniv 2017); their mean over all shares is the area under the curve;
- coverage of sets: the share of images whose label is in their set; size: the mean number of labels
  in a set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.bundle.confidence import Confidence, Doubles
from model.preprocess import Floats
from training.statistics import interval

REPORTED = (0.9, 0.95, 0.99)
"""The coverages whose sets are reported."""
BINS = 15
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""The shares of images, the most probable first, whose risk is reported."""
_RESAMPLES, _SEED = 1000, 11

Sets = Mapping[float, NDArray[np.bool_]]
"""Which labels (N, K) are in the sets of each coverage."""


def measure_images(
    confidence: Confidence, presence: Floats, labels: NDArray[np.int64]
) -> dict[str, Any]:
    """Measure a calibration on images with presence (N, K) and labels (N,)."""
    sets = {coverage: confidence.find_labels(presence, coverage) for coverage in REPORTED}
    right = presence.argmax(axis=1) == labels
    return measure(confidence.find_probability(presence), sets, right, labels)


def measure_unlabelled(confidence: Confidence, presence: Floats) -> dict[str, Any]:
    """Measure probability and sets of images (N, K) that show none of the classes."""
    sets = {coverage: confidence.find_labels(presence, coverage) for coverage in REPORTED}
    probability = confidence.find_probability(presence)
    return {
        "images": len(presence),
        "mean_probability": _rounded(probability.mean()),
        "sets": {f"{coverage:g}": describe_sets(chosen) for coverage, chosen in sets.items()},
    }


def measure(
    probability: Doubles, sets: Sets, right: NDArray[np.bool_], labels: NDArray[np.int64]
) -> dict[str, Any]:
    """Measure probabilities (N,) of answers, which are right or wrong (N,), and sets of labels."""
    low, high = bootstrap(probability, right)
    return {
        "images": len(labels),
        "error_percent": _rounded(100 * (~right).mean()),
        "mean_probability": _rounded(probability.mean()),
        "calibration_error": _rounded(calibration_error(probability, right)),
        "calibration_error_interval": [_rounded(low), _rounded(high)],
        "bins": describe_bins(probability, right),
        "risk_percent": {
            f"{share:g}": _rounded(100 * risk)
            for share, risk in zip(SHARES, find_risk(probability, right), strict=True)
        },
        "sets": {
            f"{coverage:g}": describe_sets(chosen, labels) for coverage, chosen in sets.items()
        },
    }


def calibration_error(probability: Doubles, right: NDArray[np.bool_]) -> float:
    """The calibration error of probabilities (N,) of answers that are right or wrong (N,)."""
    gaps = np.bincount(_bins(probability), probability - right, BINS)
    return float(np.abs(gaps).sum() / len(right))


def bootstrap(probability: Doubles, right: NDArray[np.bool_]) -> tuple[float, float]:
    """The 95 % interval of the calibration error, if other images were drawn.

    The error of few images is too high, as every bin is off by chance; so is that of a resample, by
    as much again. The basic bootstrap interval, twice the error minus the quantiles, takes that
    back (Davison and Hinkley 1997, section 5.2); it is not below zero.
    """
    gaps, bins, count = probability - right, _bins(probability), len(right)
    rng = np.random.default_rng(_SEED)
    found = np.empty(_RESAMPLES)
    for number in range(_RESAMPLES):
        rows = rng.integers(0, count, count)
        found[number] = np.abs(np.bincount(bins[rows], gaps[rows], BINS)).sum() / count
    low, high = 2 * calibration_error(probability, right) - np.quantile(found, [0.975, 0.025])
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


def find_risk(probability: Doubles, right: NDArray[np.bool_]) -> list[float]:
    """The share of wrong answers among the most probable of the images, for each of SHARES."""
    wrong = ~right[np.argsort(-probability, kind="stable")]
    return [float(wrong[: max(1, round(share * len(wrong)))].mean()) for share in SHARES]


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


def _bins(probability: Doubles) -> NDArray[np.int64]:
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 5)
