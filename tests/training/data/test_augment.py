from __future__ import annotations

from dataclasses import replace
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
    BatchStream,
    Pad,
    distort,
    shift,
)
from training.data.datasets import Examples
from training.recipes import Recipe

CPU = torch.device("cpu")


def stream(count: int, *, batch_size: int, seed: int = 1, shift_px: int = 2) -> BatchStream:
    """Batches of examples whose label is their number, and whose pixels are 2 + 2 * label."""
    labels = np.arange(count)
    images = np.zeros((count, 1, 6, 6), np.uint8)
    images[:, :, 2:4, 2:4] = 2 + 2 * labels[:, None, None, None]
    recipe = Recipe("r", batch_size=batch_size, shift_px=shift_px)
    return BatchStream(Examples(images, labels), recipe, seed=seed, device=CPU)


def labels(batches: BatchStream, steps: int) -> list[int]:
    """The labels of the first batches, one after the other."""
    return torch.cat([batches.batch(step).labels[:, 0] for step in range(steps)]).tolist()


@pytest.mark.parametrize(
    "batch_size",
    [
        pytest.param(5, id="whole batches"),
        pytest.param(4, id="batches across epochs"),
        pytest.param(25, id="batches of several epochs"),
    ],
)
def test_every_example_comes_once_an_epoch(batch_size: int) -> None:
    """However batches lie across epochs, each ten examples in a row are all ten."""
    seen = np.reshape(labels(stream(10, batch_size=batch_size), 100 // batch_size), (10, 10))
    np.testing.assert_array_equal(np.tile(np.arange(10), (10, 1)), np.sort(seen, axis=1))


def test_classes_are_drawn_evenly_where_that_is_asked_for() -> None:
    """Each has its share of every epoch, and all its examples get their turn."""
    labels = np.repeat(np.arange(3), [40, 8, 3])
    images = np.arange(51, dtype=np.uint8)[:, None, None, None].repeat(2, 2).repeat(2, 3)
    recipe = Recipe("r", batch_size=51, shift_px=0, even_classes=True)
    batches = BatchStream(Examples(images, labels), recipe, seed=1, device=CPU)
    seen = np.zeros(51, int)
    for step in range(12):
        batch = batches.batch(step)
        assert [17, 17, 17] == batch.labels[:, 0].bincount().tolist()
        numbers = (batch.images[:, 0, 0, 0] * 255).round().long()
        np.testing.assert_array_equal(labels[numbers], batch.labels[:, 0])
        counts = numbers.bincount(minlength=51).numpy()
        for label in range(3):
            assert np.ptp(counts[labels == label]) <= 1
        seen += counts
    assert seen.min() >= 1


@pytest.mark.parametrize("pad", ["zero", "reflect"])
@pytest.mark.parametrize("reach", [1, 3])
def test_shift_agrees_with_numpys_padding(reach: int, pad: Pad) -> None:
    """Each channel is padded alike, and the window moves over it."""
    both = torch.arange(-reach, reach + 1)
    shifts = torch.cartesian_prod(both, both)
    shape = (len(shifts), 3, 5, 7)
    images = np.random.default_rng(0).integers(1, 256, shape, np.uint8)
    edges = ((0, 0), (0, 0), (reach, reach), (reach, reach))
    padded = np.pad(images, edges, "reflect" if pad == "reflect" else "constant")
    expected = np.stack(
        [
            image[:, reach - down : reach - down + 5, reach - right : reach - right + 7]
            for image, (down, right) in zip(padded, shifts.tolist(), strict=True)
        ]
    )
    actual = shift(torch.from_numpy(images), shifts, reach, pad)
    np.testing.assert_array_equal(expected, actual.numpy())


def test_flips_mirror_half_of_the_images() -> None:
    """Left and right change places, nothing else; the order of the examples stays what it was."""
    images = np.zeros((100, 1, 6, 6), np.uint8)
    images[:, :, 1, 2] = 255
    examples = Examples(images, np.arange(100))
    recipe = Recipe("r", batch_size=100, shift_px=0)
    plain, flipping = (
        BatchStream(examples, replace(recipe, flip=flip), seed=1, device=CPU).batch(0)
        for flip in (False, True)
    )
    mirrored = flipping.images[:, 0, 1, 3] == 1
    assert 35 < mirrored.sum() < 65
    expected = torch.where(mirrored[:, None, None, None], plain.images.flip(3), plain.images)
    torch.testing.assert_close(expected, flipping.images)
    torch.testing.assert_close(plain.labels, flipping.labels)


def test_alternating_flips_mirror_every_image_every_other_epoch() -> None:
    """Half of the images begin mirrored; each one is mirrored where it was not an epoch before."""
    images = np.zeros((200, 1, 4, 4), np.uint8)
    images[..., 0] = 255
    recipe = Recipe("r", batch_size=200, shift_px=0, flip=True, flip_alternates=True)
    batches = BatchStream(Examples(images, np.arange(200)), recipe, seed=1, device=CPU)
    mirrored = [
        batch.images[batch.labels[:, 0].argsort(), 0, 0, 3] == 1
        for batch in (batches.batch(step) for step in range(3))
    ]
    assert torch.equal(mirrored[0], ~mirrored[1])
    assert torch.equal(mirrored[0], mirrored[2])
    assert 60 < mirrored[0].sum() < 140


def test_cutout_fills_a_square_with_the_mean_colour() -> None:
    """Four by four pixels, fewer at the edges, of the training images' mean; the rest is kept."""
    images = np.zeros((50, 3, 12, 12), np.uint8)
    images[:, 0], images[:, 1] = 200, np.arange(50)[:, None, None] * 2
    recipe = Recipe("r", batch_size=50, shift_px=0, cutout_px=4)
    batch = BatchStream(Examples(images, np.arange(50)), recipe, seed=1, device=CPU).batch(0)
    assert (batch.targets[:, 0] * 255 == 200).all(), "targets are whole"
    cut = (batch.images[:, 1] * 255 - 49).abs() < 0.1
    cut &= batch.labels[:, None] * 2 != 49
    counts = cut.sum(dim=(1, 2))
    assert 16 == counts.max()
    assert counts.min() >= 4
    kept = batch.images[:, 1][~cut]
    assert set((kept * 255).round().int().tolist()) <= set(range(0, 100, 2))


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
