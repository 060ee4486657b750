"""Does the length of the class stay, and does the pose turn, as the picture moves?

A capsule's length is meant to be invariant: a moved seven is as much a seven. Its direction is
meant to be equivariant: it changes as the picture does (paper, section 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats
from service.inside.affine import Transform, transform_image
from service.inspector import Capsule

MAX_STEPS = 64
LIMITS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-14, 14),
    "shift-y": (-14, 14),
    "turn": (-180, 180),
    "scale": (0.25, 4),
}
"""Smallest and largest value of each transform."""
DEFAULTS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-6, 6),
    "shift-y": (-6, 6),
    "turn": (-60, 60),
    "scale": (0.6, 1.4),
}
"""Where a walk starts and stops if nothing is said."""
_TINY = 1e-12


@dataclass(frozen=True)
class Walk:
    """One transform, step by step."""

    transform: Transform
    values: tuple[float, ...]

    def images(self, image: Floats) -> list[Floats]:
        """The picture (C, H, W) at every step."""
        return [transform_image(image, self.transform, value) for value in self.values]


@dataclass(frozen=True)
class EquivarianceView:
    """What the network says of a picture on its walk of S steps."""

    capsule: Capsule
    """Of the unmoved picture."""
    walk: Walk
    images: list[Floats]
    """S images (C, H, W)."""
    presence: Floats
    """(S, K)."""
    poses: Floats
    """(S, D), of the capsule's class."""

    @property
    def angles_deg(self) -> Floats:
        """(S,): how far each pose has turned from the unmoved picture's."""
        return angles_deg(self.poses, self.capsule.pose)


def plan_walk(transform: Transform, *, start: float | None, stop: float | None, steps: int) -> Walk:
    """Evenly spaced values, both ends included.

    Raises:
        ValueError: an end is out of the transform's limits, or the walk has no extent.
    """
    first, last = DEFAULTS[transform]
    first, last = (first if start is None else start), (last if stop is None else stop)
    low, high = LIMITS[transform]
    if not (low <= first < last <= high):
        raise ValueError(
            f"{transform} goes from {low:g} to {high:g}, upwards; not from {first:g} to {last:g}"
        )
    return Walk(transform, tuple(np.linspace(first, last, steps).round(6).tolist()))


def angles_deg(poses: Floats, still: Floats) -> Floats:
    """Angles between poses (S, D) and one pose (D,), in degrees.

    By Kahan's formula for unit vectors: the cosine of a small angle is 1 for all floats know.
    """
    ones, other = _unit(poses), _unit(still)
    apart = np.linalg.norm(ones - other, axis=1)
    together = np.linalg.norm(ones + other, axis=1)
    return np.asarray(np.degrees(2 * np.arctan2(apart, together)))


def _unit(vectors: Floats) -> NDArray[np.float64]:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / (np.linalg.norm(exact, axis=-1, keepdims=True) + _TINY))
