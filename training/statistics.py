"""Compute 95 % intervals and standard errors of scores.

Networks that differ in their seed answer the same images, so seeds are no further trials. Images of
one object, and pairs of a few thousand digits, share what they show: they are fewer trials than
images.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import scipy
from numpy.typing import NDArray

Z = NormalDist().inv_cdf(0.975)
"""The standard deviations to either side that hold 95 % of a normal distribution."""


def interval(errors: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval of an error, in percent, for `errors` wrong of `count` answers."""
    low, high = scipy.stats.binomtest(errors, count).proportion_ci(method="wilson")
    return 100 * float(low), 100 * float(high)


def mean_interval(
    values: NDArray[np.generic], shown: NDArray[np.int64] | None = None
) -> tuple[float, float]:
    """Return the interval of the mean of a value for each image (N,), in percent.

    Of several networks, the values are the mean over networks for each image; of two that are
    compared, their difference. Few objects take Student's t.

    Args:
        shown: see `standard_error`.
    """
    quantile = Z
    if shown is not None and shown.ndim == 1:
        quantile = float(scipy.stats.t.ppf(0.975, len(np.unique(shown)) - 1))
    reach = standard_error(values, shown) * quantile
    middle = float(values.astype(float).mean())
    return 100 * (middle - reach), 100 * (middle + reach)


def standard_error(values: NDArray[np.generic], shown: NDArray[np.int64] | None = None) -> float:
    """Return the standard error of the mean of values (N,): std / sqrt(N).

    Images that show the same object are not independent. Of M objects with equally many images, the
    error is std / sqrt(M), where std is that of the M mean values.

    Pairs that share a digit are not independent either. Let e be a pair's distance from the mean.
    The variance of the mean is the sum of e_a e_b over all pairs a and b that share a digit,
    divided by N squared (Aronow, Samii and Assenova, "Cluster-Robust Variance Estimation for Dyadic
    Data", 2015). Resampling digits, instead of pairs, gives the same.

    Args:
        shown: which object (N,) each image shows, or which two digits (N, 2) each pair; None where
            images show nothing in common.
    """
    count = len(values)
    rest = values.astype(float)
    rest -= rest.mean()
    if shown is None:
        return float(rest.std() / count**0.5)
    own = float((rest**2).sum())
    sums = np.bincount(np.unique(shown, return_inverse=True)[1].ravel(), rest.repeat(shown[0].size))
    if shown.ndim == 1:
        return float(((sums**2).sum() * len(sums) / (len(sums) - 1)) ** 0.5 / count)
    # What shares both digits is in the sums of both.
    both = shown.min(axis=1) * (shown.max() + 1) + shown.max(axis=1)
    by_both = np.bincount(np.unique(both, return_inverse=True)[1], rest)
    return float(max((sums**2).sum() - (by_both**2).sum(), own) ** 0.5 / count)
