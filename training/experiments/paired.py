"""How far two networks differ on the same images: a paired test with the variance of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from training.experiments.run import Result


class Difference(NamedTuple):
    """The error of one network less that of another, in percentage points."""

    points: float
    low: float
    high: float
    """The 95 % interval."""

    @property
    def is_significant(self) -> bool:
        """Whether the interval does not hold zero."""
        return self.low > 0 or self.high < 0


def compare(first: Sequence[Result], second: Sequence[Result], test: str) -> Difference | None:
    """The difference of two networks' errors over the seeds of each.

    The variance is that of the paired differences over images plus that of each network's error
    over its seeds; the interval is Student's t with the Welch-Satterthwaite degrees of freedom.
    With one seed each it is that of images alone.

    Returns:
        None where a network has no results, or older ones that did not keep which images were
        wrong.
    """
    if not first or not second or any(test not in one.which for one in (*first, *second)):
        return None
    rates = [_wrong(first, test), _wrong(second, test)]  # (seeds, images) each
    paired = rates[0].mean(axis=0) - rates[1].mean(axis=0)
    variances = [paired.var(ddof=1) / len(paired)]
    freedom = [len(paired) - 1]
    for rate in rates:
        if len(rate) > 1:
            variances.append(rate.mean(axis=1).var(ddof=1) / len(rate))
            freedom.append(len(rate) - 1)
    total = sum(variances)
    parts = sum(part**2 / free for part, free in zip(variances, freedom, strict=True))
    reach = stats.t.ppf(0.975, total**2 / parts) * total**0.5 if total else 0.0
    middle = paired.mean()
    return Difference(*(float(100 * value) for value in (middle, middle - reach, middle + reach)))


def _wrong(results: Sequence[Result], test: str) -> NDArray[np.float64]:
    """1 where a seed (row) answered an image (column) wrongly."""
    wrong = np.zeros((len(results), results[0].tested[test]))
    for row, one in zip(wrong, results, strict=True):
        row[one.which[test]] = 1
    return wrong
