"""Measure how far probabilities and sets of labels can be trusted.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from model.bundle import Manifest
from model.bundle.confidence import Confidence, Doubles
from model.preprocess import Floats
from training.statistics import interval

REPORTED = (0.9, 0.95, 0.99)
"""The coverages whose sets are reported."""
BINS = 15
_RESAMPLES, _SEED = 1000, 11

Sets = Mapping[float, NDArray[np.bool_]]
"""Which labels (N, K) are in the sets of each coverage."""


def measure_images(
    confidence: Confidence, presence: Floats, labels: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Measure a calibration on images with presence (N, K) and labels (N,).

    Args:
        labels: None for images that show none of the classes.
    """
    sets = {coverage: confidence.find_labels(presence, coverage) for coverage in REPORTED}
    probability = confidence.find_probability(presence)
    right = None if labels is None else presence.argmax(axis=1) == labels
    return measure(probability, sets, right, labels)


def measure(
    probability: Doubles,
    sets: Sets,
    right: NDArray[np.bool_] | None,
    labels: NDArray[np.int64] | None,
) -> dict[str, Any]:
    """Measure probabilities (N,) of answers, which are right or wrong (N,), and sets of labels."""
    measures: dict[str, Any] = {
        "images": len(probability),
        "mean_probability": _rounded(probability.mean()),
        "sets": {
            f"{coverage:g}": describe_sets(chosen, labels) for coverage, chosen in sets.items()
        },
    }
    if right is None:
        return measures
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
    rng, count = np.random.default_rng(_SEED), len(right)
    rows = (rng.integers(0, count, count) for _ in range(_RESAMPLES))
    errors = [calibration_error(probability[drawn], right[drawn]) for drawn in rows]
    low, high = 2 * calibration_error(probability, right) - np.quantile(errors, [0.975, 0.025])
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
    low, high = stats.beta.interval(0.95, rank, count + 1 - rank)
    return float(low), float(high)


def _bins(probability: Doubles) -> NDArray[np.int64]:
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 5)
