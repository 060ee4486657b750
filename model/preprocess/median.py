"""numpy's median for floats that are all numbers, in less time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def median(values: NDArray[np.floating]) -> float:
    """The median of one or more values (N,), equal to numpy's to the last bit."""
    ordered, middle = np.sort(values), len(values) // 2
    return float((ordered[-1 - middle] + ordered[middle]) / 2)
