"""A sweep: the same pose again and again, one dimension moved step by step (paper, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.preprocess import Floats

MAX_PICTURES = 256
"""Pictures of one sweep: all are decoded as one batch."""
_DECIMALS = 9
"""Steps such as 0.05 add up to round numbers."""


@dataclass(frozen=True)
class Sweep:
    """The dimensions that are changed, and by how much."""

    dims: tuple[int, ...]
    """The rows of the sweep's grid."""
    deltas: tuple[float, ...]
    """The changes of a pose's number, one for each column."""

    def poses(self, pose: Floats) -> Floats:
        """Every picture's pose, row by row: pose (D,) to (len(dims) * len(deltas), D).

        Row m of the grid and column n hold pose + deltas[n] * e_dims[m].
        """
        grid = np.tile(pose, (len(self.dims), len(self.deltas), 1))
        for row, dim in enumerate(self.dims):
            grid[row, :, dim] += np.asarray(self.deltas, np.float32)
        return grid.reshape(-1, len(pose))

    def on_grid(self, images: Floats) -> Floats:
        """Images (M, C, H, W) of these poses to (len(dims), len(deltas), C, H, W)."""
        return images.reshape(len(self.dims), len(self.deltas), *images.shape[1:])


def plan_sweep(dims: Sequence[int], *, start: float, stop: float, step: float) -> Sweep:
    """The sweep of some dimensions from `start` to `stop`, both included where `step` reaches it.

    Args:
        dims: pose dimensions.
        start: first delta.
        stop: last delta, at least `start`.
        step: above zero.

    Raises:
        ValueError: the range is empty, or there are more than MAX_PICTURES pictures.
    """
    if stop < start:
        raise ValueError(f"the sweep ends at {stop:g}, before its start at {start:g}")
    count = int((stop - start) / step + 1e-6) + 1
    if count * len(dims) > MAX_PICTURES:
        raise ValueError(
            f"{len(dims)} dimensions by {count:,} steps are {count * len(dims):,} pictures; "
            f"a sweep has at most {MAX_PICTURES}"
        )
    deltas = tuple(round(start + number * step, _DECIMALS) + 0.0 for number in range(count))
    return Sweep(tuple(dims), deltas)
