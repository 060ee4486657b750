"""Sweep a pose: move one dimension step by step and decode (paper, figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.preprocess import Floats

MAX_IMAGES = 256
"""A sweep has at most this many images, which are decoded as one batch."""
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
        """Return the poses of all images, row by row: pose (D,) to (len(dims) * len(deltas), D).

        Row m of the grid and column n hold pose + deltas[n] * e_dims[m].
        """
        grid = np.tile(pose, (len(self.dims), len(self.deltas), 1))
        for row, dim in enumerate(self.dims):
            grid[row, :, dim] += np.asarray(self.deltas, np.float32)
        return grid.reshape(-1, len(pose))

    def on_grid(self, images: Floats) -> Floats:
        """Arrange images (M, C, H, W) of these poses as (len(dims), len(deltas), C, H, W)."""
        return images.reshape(len(self.dims), len(self.deltas), *images.shape[1:])


def plan_sweep(dims: Sequence[int], *, start: float, stop: float, step: float) -> Sweep:
    """The sweep of some dimensions from `start` to `stop`, both included where `step` reaches it.

    Args:
        dims: pose dimensions.
        start: first delta.
        stop: last delta, at least `start`.
        step: above zero.

    Raises:
        ValueError: the range is empty, or there are more than MAX_IMAGES images.
    """
    if stop < start:
        raise ValueError(f"the sweep ends at {stop:g}, before its start at {start:g}")
    count = int((stop - start) / step + 1e-6) + 1
    if count * len(dims) > MAX_IMAGES:
        raise ValueError(
            f"{len(dims)} dimensions by {count:,} steps are {count * len(dims):,} pictures; "
            f"a sweep has at most {MAX_IMAGES}"
        )
    deltas = tuple(round(start + number * step, _DECIMALS) + 0.0 for number in range(count))
    return Sweep(tuple(dims), deltas)
