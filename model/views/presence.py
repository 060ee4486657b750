"""Rank classes by their presence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats


def most_present(presence: Floats, count: int) -> NDArray[np.int64]:
    """Return the `count` most present classes, the most present first: (..., K) to (..., count)."""
    return np.argsort(-presence, axis=-1, kind="stable")[..., :count]
