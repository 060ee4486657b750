from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

from training.data.augment import (
    GRID,
    NUMBERS,
    RESOLUTION,
    Augmentation,
    distort,
)
from training.data.datasets import Examples

CPU = torch.device("cpu")
SIZE = 28


@pytest.fixture
def strokes() -> Examples:
    """20 images of soft strokes that differ, far from the edges."""
    places = np.arange(SIZE) - SIZE / 2
    down, right = places[:, None], places
    angles = np.arange(20)[:, None, None] / 3
    across = np.sin(angles) * down + np.cos(angles) * right - 2
    images = 255 * np.exp(-(across**2) / 18 - np.hypot(down, right) ** 4 / 5000)
    return Examples(images.astype(np.uint8)[:, None], np.arange(20))


def no_numbers(count: int) -> Tensor:
    return torch.zeros(count, NUMBERS, dtype=torch.int64)


def ramps() -> Tensor:
    """Two images of one channel: how far down each pixel is, and how far right."""
    places = torch.arange(SIZE, dtype=torch.float32).expand(SIZE, SIZE)
    return torch.stack((places.T, places))[:, None]


def test_numbers_of_zero_change_nothing(strokes: Examples) -> None:
    """An image is itself where neither turn, scale, shear nor control points move it."""
    images = torch.tensor(strokes.images).float()
    actual = distort(images, no_numbers(len(images)), Augmentation(affine=1, elastic_px=9))
    torch.testing.assert_close(images, actual, rtol=0, atol=0.01)


def warp(image: NDArray[np.uint8], turn: float, height: float, width: float, shear: float) -> Any:
    """An image (H, H) scaled, then sheared, then rotated about its middle; the angle is in radians.

    Height, width and shear are changes as shares of the size.
    """
    places = np.arange(SIZE) - (SIZE - 1) / 2
    y, x = places[:, None], places
    down = np.cos(turn) * y - np.sin(turn) * x
    right = np.sin(turn) * y + np.cos(turn) * x - down * shear
    sources = np.array((down / (1 + height), right / (1 + width))) + (SIZE - 1) / 2
    return ndimage.map_coordinates(image.astype(float), sources, order=1)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("kept", [(0,), (1, 2), (3,), (0, 1, 2, 3)], ids=str)
def test_affine_distortion_is_that_of_affnist(
    strokes: Examples, kept: tuple[int, ...], share: float
) -> None:
    """Up to 20 degrees, a fifth of height and width, and a shear by 0.2."""
    numbers = no_numbers(len(strokes.labels))
    drawn = np.random.default_rng(0).integers(-RESOLUTION, RESOLUTION + 1, (len(numbers), 4))
    numbers[:, kept] = torch.tensor(drawn[:, kept])
    images = torch.tensor(strokes.images).float()
    actual = distort(images, numbers, Augmentation(affine=share))
    limits = share * np.array((np.radians(20), 0.2, 0.2, 0.2))
    expected = [
        warp(image, *amounts)
        for image, amounts in zip(
            strokes.images[:, 0], numbers[:, :4].numpy() / RESOLUTION * limits, strict=True
        )
    ]
    torch.testing.assert_close(
        torch.tensor(np.array(expected))[:, None].float(), actual, rtol=0, atol=10
    )


@pytest.mark.parametrize("axis", [0, 1], ids=["right", "down"])
@pytest.mark.parametrize("number", [RESOLUTION, RESOLUTION // 2])
def test_a_control_point_moves_by_its_number(axis: int, number: int) -> None:
    """Its pixel comes from as far away as that share of `elastic_px`."""
    numbers = no_numbers(2)
    numbers[:, 4:].view(2, 2, GRID, GRID)[:, axis, 0, 0] = number
    moved = distort(ramps(), numbers, Augmentation(elastic_px=3)) - ramps()
    expected = [[0.0, 3 * number / RESOLUTION], [3 * number / RESOLUTION, 0.0]][axis]
    torch.testing.assert_close(torch.tensor(expected), moved[:, 0, 0, 0])
    torch.testing.assert_close(torch.zeros(2), moved[:, 0, -1, -1])


def test_channels_are_distorted_alike(strokes: Examples) -> None:
    """A colour image is its channels, each distorted by the same numbers."""
    images = torch.tensor(strokes.images).float()
    numbers = torch.randint(-RESOLUTION, RESOLUTION + 1, (len(images), NUMBERS))
    both = torch.cat((images, images.flip(2)), dim=1)
    largest = Augmentation(affine=1, elastic_px=2)
    expected = [distort(one[:, None], numbers, largest) for one in both.unbind(1)]
    torch.testing.assert_close(torch.cat(expected, 1), distort(both, numbers, largest))


def test_wide_images_turn_as_square_ones_do(strokes: Examples) -> None:
    """Columns of black at both sides do not change how the middle is turned, scaled and sheared."""
    images = torch.tensor(strokes.images).float()
    numbers = torch.randint(-RESOLUTION, RESOLUTION + 1, (len(images), NUMBERS))
    wide = distort(torch.nn.functional.pad(images, (7, 7)), numbers, Augmentation(affine=1))
    square = distort(images, numbers, Augmentation(affine=1))
    torch.testing.assert_close(square, wide[..., 7:-7], rtol=0, atol=0.01)
