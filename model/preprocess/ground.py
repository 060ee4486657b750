"""The light of a picture's ground: paper under a lamp."""

from __future__ import annotations

import numpy as np

from model.preprocess.median import median
from model.preprocess.pixels import Floats, shrink
from model.preprocess.polarity import Polarity

_THUMBNAIL_SIZE = 48
"""Longest side, in pixels, at which the ground's light is measured."""
_BORDER = 0.85
"""Pixels further out than this, of 1, are the border."""
_EXTREME = 2
"""Percent of the pixels that are darker, or lighter, than an even ground."""
_STROKE_CONTRAST = 0.35
"""Border pixels further than this from their median, of 1, are strokes."""


def illumination(grey: Floats) -> Floats:
    """The picture's ground as a smooth surface: a quadratic, fitted without the strokes.

    Starts from the border, which rarely holds strokes, then takes in all pixels near the surface.
    """
    thumbnail = shrink(grey, _THUMBNAIL_SIZE)
    x, y = _coordinates(thumbnail)
    values = thumbnail.ravel().astype(np.float64)
    terms = np.stack(np.broadcast_arrays(1.0, x, y, x * y, x * x, y * y), -1).reshape(-1, 6)
    border = (np.maximum(np.abs(x), np.abs(y)) > _BORDER).ravel()
    ground = border & (np.abs(values - median(values[border])) < _STROKE_CONTRAST)
    if not ground.any():  # half of the border is dark and half is light
        ground = border
    solution = np.zeros(6)
    for _ in range(4):
        known = terms[ground]
        # In narrow pictures x * x is as good as constant: prefer the constant.
        ridge = 1e-6 * len(known) * np.diag([0.0, 1, 1, 1, 1, 1])
        solution = np.linalg.solve(known.T @ known + ridge, known.T @ values[ground])
        distance = np.abs(values - terms @ solution)
        spread = 1.4826 * median(distance[ground])
        near = distance < max(3 * spread, 0.02)
        if not near.any() or np.array_equal(near, ground):
            break
        ground = near
    x, y = _coordinates(grey)
    level, across, down, twist, across_squared, down_squared = solution.astype(np.float32)
    return np.asarray(
        level + x * (across + across_squared * x) + y * (down + down_squared * y) + twist * (x * y)
    )


def flat_ground(grey: Floats, polarity: Polarity) -> float:
    """The ground's light where it is even: all but the darkest, or lightest, of the picture.

    Strokes of unknown polarity are taken for the smaller part.
    """
    dark, light = np.percentile(grey, (_EXTREME, 100 - _EXTREME))
    if polarity == "auto":
        polarity = "light-on-dark" if median(grey.ravel()) < (dark + light) / 2 else "dark-on-light"
    return float(dark if polarity == "light-on-dark" else light)


def _coordinates(grey: Floats) -> tuple[Floats, Floats]:
    """X (1, W) and y (H, 1) of a picture (H, W), from -1 to 1."""
    height, width = grey.shape
    across = np.linspace(-1, 1, width, dtype=np.float32)
    return across[None, :], np.linspace(-1, 1, height, dtype=np.float32)[:, None]
