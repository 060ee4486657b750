"""Compute 95 % intervals and standard errors of scores.

Networks that differ in their seed answer the same images, so seeds are no further trials, and pairs
of a few thousand digits share digits, so they are fewer trials than pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Z = float(stats.norm.ppf(0.975))
"""The standard deviations to either side that hold 95 % of a normal distribution."""


def interval(errors: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval of an error, in percent, for `errors` wrong of `count` answers.

    Raises:
        ValueError: there are no answers, or fewer than errors.
    """
    if count < 1:
        raise ValueError(f"{errors} of {count} answers cannot be wrong")
    low, high = stats.binomtest(errors, count).proportion_ci(method="wilson")
    return 100 * float(low), 100 * float(high)


def mean_interval(
    values: NDArray[np.generic], digits: NDArray[np.int64] | None = None
) -> tuple[float, float]:
    """Return the interval of the mean of a value for each image (N,), in percent.

    Of several networks, the values are the mean over networks for each image; of two that are
    compared, their difference.

    Args:
        digits: of pairs, which two digits (N, 2) each is of.
    """
    reach = Z * standard_error(values, digits)
    middle = float(values.astype(float).mean())
    return 100 * (middle - reach), 100 * (middle + reach)


def standard_error(values: NDArray[np.generic], digits: NDArray[np.int64] | None = None) -> float:
    """Return the standard error of the mean of values (N,): std / sqrt(N).

    Pairs that share digits (N, 2) have a larger one.

    With e the distance from the mean, the variance is the sum of e_a e_b over all pairs a and b
    that share a digit, over N squared (Aronow, Samii and Assenova, "Cluster-Robust Variance
    Estimation for Dyadic Data", 2015): what resampling digits, not pairs, would give.
    """
    count = len(values)
    rest = values.astype(float)
    rest -= rest.mean()
    if digits is None:
        return float(rest.std() / count**0.5)
    own = float((rest**2).sum())
    by_digit = np.bincount(digits.ravel(), rest.repeat(2))
    # What shares both digits is in the sums of both.
    both = digits.min(axis=1) * len(by_digit) + digits.max(axis=1)
    by_both = np.bincount(np.unique(both, return_inverse=True)[1], rest)
    return float(max((by_digit**2).sum() - (by_both**2).sum(), own) ** 0.5 / count)


def design_effect(values: NDArray[np.generic], digits: NDArray[np.int64]) -> float:
    """Return the design effect (Kish 1965) of shared digits on the mean of pairs' values."""
    plain = standard_error(values)
    return (standard_error(values, digits) / plain) ** 2 if plain else 1.0
