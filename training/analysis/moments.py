"""Measures of a drawn digit, and the pictures' directions in which each of them grows.

A measure is a moment of the ink p(x, y), x to the right and y down, in pixels. Its tangent is the
derivative of the picture along the deformation that the measure is named for: with a displacement
field (u, v) it is -u dp/dx - v dp/dy (Simard et al., "Transformation Invariance in Pattern
Recognition", 1998, section 2).
"""

from __future__ import annotations

from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from model.interpret.dimensions import DimensionName

Doubles = NDArray[np.float64]

MEASURES = cast("tuple[DimensionName, ...]", get_args(DimensionName)[:-2])
"""In the order of the last axis of `measure` and `tangents`."""
_FAINTEST = 1e-9
"""Added to what is divided by: an empty picture measures zero."""


def measure(images: NDArray[np.floating]) -> Doubles:
    """All measures of pictures (..., H, W) in [0, 1], as (..., 7).

    With mass m = sum p and central moments mu (Hu, 1962):

    - thickness: 2 m / sum |grad p|, the width of a long stroke (its area by half its outline, which
      the coarea formula counts over all grey levels);
    - area: m;
    - slant: -mu_11 / mu_02, columns to the right by each row upwards;
    - width: 2 sqrt((mu_20 - mu_11^2 / mu_02) / m), of the upright digit;
    - height: 2 sqrt(mu_02 / m);
    - horizontal and vertical shift: the centre of mass.
    """
    ink = np.asarray(images, np.float64)
    x, y = _coordinates(ink)
    area = ink.sum(axis=(-2, -1))
    mass = area + _FAINTEST
    across, down = (ink * x).sum(axis=(-2, -1)) / mass, (ink * y).sum(axis=(-2, -1)) / mass
    dx, dy = x - across[..., None, None], y - down[..., None, None]
    mu20, mu11, mu02 = (
        (ink * product).sum(axis=(-2, -1)) / mass for product in (dx * dx, dx * dy, dy * dy)
    )
    steps = (np.diff(ink, axis=axis, append=0) for axis in (-2, -1))
    outline = np.hypot(*steps).sum(axis=(-2, -1))
    shear = mu11 / (mu02 + _FAINTEST)
    return np.stack(
        [
            2 * area / (outline + _FAINTEST),
            area,
            -shear,
            2 * np.sqrt(np.maximum(mu20 - shear * mu11, 0)),
            2 * np.sqrt(mu02),
            across,
            down,
        ],
        axis=-1,
    )


def tangents(images: NDArray[np.floating]) -> Doubles:
    """How each deformation begins to change pictures (..., H, W), as (..., 7, H, W)."""
    ink = np.asarray(images, np.float64)
    x, y = _coordinates(ink)
    mass = ink.sum(axis=(-2, -1), keepdims=True) + _FAINTEST
    dx = x - (ink * x).sum(axis=(-2, -1), keepdims=True) / mass
    dy = y - (ink * y).sum(axis=(-2, -1), keepdims=True) / mass
    along_x, along_y = _gradient(ink)
    return np.stack(
        [
            np.hypot(along_x, along_y),
            ink,
            dy * along_x,
            -dx * along_x,
            -dy * along_y,
            -along_x,
            -along_y,
        ],
        axis=-3,
    )


def _coordinates(ink: Doubles) -> tuple[Doubles, Doubles]:
    height, width = ink.shape[-2:]
    return np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]


def _gradient(ink: Doubles) -> tuple[Doubles, Doubles]:
    """dp/dx and dp/dy by central differences."""
    return np.asarray(np.gradient(ink, axis=-1)), np.asarray(np.gradient(ink, axis=-2))
