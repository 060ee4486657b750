"""Moving, turning and scaling a picture by fractions of a pixel."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

Doubles = NDArray[np.float64]
Transform = Literal["shift-x", "shift-y", "turn", "scale"]


def transform_image(image: Floats, transform: Transform, value: float) -> Floats:
    """Move an image (..., H, W) about its middle.

    Args:
        image: in [0, 1], on black.
        transform: what is done.
        value: pixels to the right (`shift-x`) or down (`shift-y`), degrees counter-clockwise
            (`turn`), or the factor by which it grows (`scale`).
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
    right, below = (source - corner)[..., 0], (source - corner)[..., 1]
    result = np.zeros(image.shape)
    for down, row_weight in ((0, 1 - below), (1, below)):
        for across, column_weight in ((0, 1 - right), (1, right)):
            place = corner + np.array([across, down])
            result += row_weight * column_weight * _sample(image, place[..., 0], place[..., 1])
    return result.astype(np.float32)


def _sample(image: Floats, x: NDArray[np.int64], y: NDArray[np.int64]) -> Floats:
    """The pixels at whole coordinates; zero outside."""
    height, width = image.shape[-2:]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return np.where(inside, image[..., y.clip(0, height - 1), x.clip(0, width - 1)], 0)
