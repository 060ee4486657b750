from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.views.equivariance import angles_deg, straightness, transform_image

Floats = NDArray[np.float32]


@pytest.fixture
def picture() -> Floats:
    """Smooth, so that interpolation loses little; dark at its edges."""
    y, x = np.mgrid[0:28, 0:28]
    blobs = [(10, 12, 1.2), (16, 15, 1.5)]
    return sum(
        np.exp(-((x - across) ** 2 + (y - down) ** 2) / (2 * size**2))
        for across, down, size in blobs
    ).astype(np.float32)


def slow_warp(picture: Floats, matrix: NDArray[np.float64], offset: tuple[float, float]) -> Floats:
    """Pixel by pixel, with the tent 1 - |distance| over every source pixel."""
    inverse = np.linalg.inv(matrix)
    result = np.zeros_like(picture)
    height, width = picture.shape
    for row in range(height):
        for column in range(width):
            dx = column - (width - 1) / 2 - offset[0]
            dy = row - (height - 1) / 2 - offset[1]
            x = inverse[0, 0] * dx + inverse[0, 1] * dy + (width - 1) / 2
            y = inverse[1, 0] * dx + inverse[1, 1] * dy + (height - 1) / 2
            for j in range(max(0, math.floor(y)), min(height, math.floor(y) + 2)):
                for i in range(max(0, math.floor(x)), min(width, math.floor(x) + 2)):
                    weight = max(0, 1 - abs(x - i)) * max(0, 1 - abs(y - j))
                    result[row, column] += weight * picture[j, i]
    return result


@pytest.mark.parametrize(
    ("transform", "value", "matrix", "offset"),
    [
        ("shift-x", 0.3, [[1, 0], [0, 1]], (0.3, 0)),
        ("shift-y", -1.7, [[1, 0], [0, 1]], (0, -1.7)),
        ("turn", 30, [[0.75**0.5, 0.5], [-0.5, 0.75**0.5]], (0, 0)),
        ("scale", 1.3, [[1.3, 0], [0, 1.3]], (0, 0)),
    ],
)
def test_pixels_are_interpolated(
    transform: Any,
    value: float,
    matrix: list[list[float]],
    offset: tuple[float, float],
    picture: Floats,
) -> None:
    """A slow loop over every pixel gives the same."""
    small = picture[6:20, 4:20]
    expected = slow_warp(small, np.array(matrix), offset)
    assert np.allclose(expected, transform_image(small, transform, value), atol=1e-6)


def test_a_quarter_turn_is_counter_clockwise(picture: Floats) -> None:
    """As `numpy.rot90`, which turns pictures that way."""
    assert np.allclose(np.rot90(picture), transform_image(picture, "turn", 90), atol=1e-6)


def test_a_half_circle_is_as_long_as_it_is() -> None:
    """Diameter over half the circumference."""
    angles = np.linspace(0, np.pi, 500)
    poses = np.stack((np.cos(angles), np.zeros(500), np.sin(angles)), axis=1)
    assert 2 / np.pi == pytest.approx(straightness(poses), rel=1e-4)


def test_angles_are_between_directions() -> None:
    """Right angles, opposite and equal directions, whatever the lengths."""
    poses = np.array([[2.0, 0], [0, 0.1], [-3, 0], [1, 1]], np.float32)
    found = angles_deg(poses, np.array([0.5, 0], np.float32))
    assert [0, 90, 180, 45] == pytest.approx(found.tolist(), abs=1e-3)
