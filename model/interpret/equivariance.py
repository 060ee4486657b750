"""Measure whether a class's length stays, and its pose follows, as the image moves.

A capsule's length is meant to be invariant: a moved seven is as much a seven. Its direction is
meant to be equivariant: it changes as the image does (paper, section 1). So an image is moved,
rotated or scaled step by step, by fractions of a pixel, and encoded at every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

Doubles = NDArray[np.float64]
Transform = Literal["shift-x", "shift-y", "turn", "scale"]
MAX_STEPS = 64
LIMITS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-14, 14),
    "shift-y": (-14, 14),
    "turn": (-180, 180),
    "scale": (0.25, 4),
}
"""The smallest and largest value of each transform."""
DEFAULTS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-6, 6),
    "shift-y": (-6, 6),
    "turn": (-60, 60),
    "scale": (0.6, 1.4),
}
"""The default range of each transform."""


@dataclass(frozen=True)
class Walk:
    """A transform and its values, step by step."""

    transform: Transform
    values: tuple[float, ...]

    def images(self, image: Floats) -> list[Floats]:
        """The image (C, H, W) at every step."""
        return [transform_image(image, self.transform, value) for value in self.values]


def plan_walk(transform: Transform, *, start: float | None, stop: float | None, steps: int) -> Walk:
    """Return evenly spaced values, both ends included.

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


def transform_image(image: Floats, transform: Transform, value: float) -> Floats:
    """Move an image (..., H, W) in [0, 1] about its middle.

    The value is in pixels to the right (`shift-x`) or down (`shift-y`), in degrees
    counter-clockwise (`turn`), or the factor by which the image grows (`scale`).
    """
    matrix, offset = np.eye(2), np.zeros(2)
    match transform:
        case "shift-x":
            offset[0] = value
        case "shift-y":
            offset[1] = value
        case "turn":
            cosine, sine = math.cos(math.radians(value)), math.sin(math.radians(value))
            matrix = np.array([[cosine, sine], [-sine, cosine]])  # y points down
        case "scale":
            matrix = matrix * value
    return warp(image, matrix, offset)


def warp(image: Floats, matrix: Doubles, offset: Doubles) -> Floats:
    """Apply x' = A (x - m) + m + t to every point x of an image, m its middle.

    Each pixel of the result takes what lies at x = A^-1 (x' - m - t) + m, weighted bilinearly from
    its four neighbours. Outside of the image there is black: what leaves the frame is lost, and a
    stroke at the very edge fades within a pixel.

    Args:
        image: (..., H, W); all channels move alike.
        matrix: A, (2, 2), for (x, y), invertible.
        offset: t, (2,), in pixels.
    """
    height, width = image.shape[-2:]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)  # (H, W, 2)
    source = (grid - middle - offset) @ np.linalg.inv(matrix).T + middle
    corner = np.floor(source).astype(int)
    share = source - corner
    result = np.zeros(image.shape)
    for step in np.ndindex(2, 2):
        x, y = np.moveaxis(corner + step, -1, 0)
        weight = np.where(step, share, 1 - share).prod(axis=-1)
        weight *= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        result += weight * image[..., y.clip(0, height - 1), x.clip(0, width - 1)]
    return result.astype(np.float32)


def angles_deg(poses: Floats, still: Floats) -> Floats:
    """Return the angles between poses (S, D) and one pose (D,), in degrees, (S,).

    By Kahan's formula for unit vectors: the cosine of a small angle rounds to 1.
    """
    ones, other = _unit(poses), _unit(still)
    apart = np.linalg.norm(ones - other, axis=1)
    return np.asarray(np.degrees(2 * np.arctan2(apart, np.linalg.norm(ones + other, axis=1))))


def _unit(vectors: Floats) -> Doubles:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / (np.linalg.norm(exact, axis=-1, keepdims=True) + 1e-12))
