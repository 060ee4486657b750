"""A direction for tests."""

from __future__ import annotations

import numpy as np

from model.bundle.directions import RANKS, Direction, Quality, Reading


def make_direction(
    label: int,
    name: str = "slant",
    *,
    dim: int = 3,
    dims: int = 16,
    got: float = 1,
    same_way: float = 1,
    largest_other: float = 0,
    std: float = 10,
) -> Direction:
    """One degree moves one dimension by 0.01; the reading is the same backwards, R² 0.9.

    The class has values from -20 to 20.
    """
    vector, weights = np.zeros(dims), np.zeros(dims)
    vector[dim], weights[dim] = 0.01, 100
    return Direction(
        label=label,
        name=name,
        unit="degrees" if name == "slant" else "px",
        vector=tuple(vector.tolist()),
        std=std,
        quantiles=tuple(np.linspace(-20, 20, len(RANKS)).tolist()),
        quality=Quality(got=got, spread=0.1, same_way=same_way, largest_other=largest_other),
        reading=Reading(intercept=2, weights=tuple(weights.tolist()), r2=0.9, mean_error=1.5),
        offset=0.5,
    )
