"""Digits rotated, scaled, sheared and moved as in affNIST, in whole-number arithmetic.

affNIST (the paper's section 5.2) rotates by up to 20 degrees, scales each direction by 0.8 to 1.2,
shears by up to 0.2 and moves digits as far as they stay whole, on 40x40 pixels, where the paper's
networks had seen them moved, and no more, in training. Here images keep their size and digits
that are rotated, scaled or sheared move by no more than in training.

Random numbers are outputs of PCG64 taken modulo their range, as in `training/data/pairs.py`;
positions are in parts of a pixel and brightness is interpolated between four pixels in 256ths, all
integers. So the same digits give the same images everywhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.datasets import Examples

Integers = NDArray[np.int64]


class Reach(NamedTuple):
    """How far a set goes, each way. Everything is sampled uniformly."""

    turn: int = 0
    """In tenths of a degree."""
    scale: int = 0
    """In thousandths, of height and width apart."""
    shear: int = 0
    """In thousandths of the height."""
    move: int = 0
    """In pixels, but only as far as no ink is lost."""


TRANSFORMS = {
    "moved": Reach(move=4),
    "turned": Reach(turn=200),
    "scaled": Reach(scale=200),
    "sheared": Reach(shear=200),
    "affine 25 %": Reach(50, 50, 50, move=2),
    "affine 50 %": Reach(100, 100, 100, move=2),
    "affine 75 %": Reach(150, 150, 150, move=2),
    "affine 100 %": Reach(200, 200, 200, move=2),
}
"""One transformation at its full range (of moves: twice that of training); all at a share of it."""
MOVED = Reach(move=12)
"""Digits anywhere on a larger square: the ink stays whole."""
AFFNIST = {
    "moved anywhere": MOVED,
    "as affNIST": Reach(200, 200, 200, move=8),
}
"""Test sets of the paper's section 5.2, of digits on 40x40 pixels: what is learnt, and affNIST's
ranges."""
_SEED = 2013
_ONE = 1 << 16
_UNIT_BITS = 17
"""Positions are counted in 2**-17 pixels from half a pixel: coordinates are doubled."""
_CHUNK = 500


def transform(digits: Examples, reach: Reach) -> Examples:
    """Every digit once, each transformed by its own numbers, which depend on its place alone.

    Sets of different reach use the same random numbers, so that they differ by the reach only.

    Args:
        digits: images (N, 1, H, H).
    """
    single = digits.images.squeeze(1)
    numbers = np.random.PCG64(_SEED).random_raw(6 * len(digits.labels)).reshape(-1, 6)
    limits = np.array([reach.turn, reach.scale, reach.scale, reach.shear])
    sampled = (numbers[:, :4] % (2 * limits + 1).astype(np.uint64)).astype(np.int64) - limits
    images = np.concatenate(
        [
            _warp(single[start : start + _CHUNK], sampled[start : start + _CHUNK])
            for start in range(0, len(sampled), _CHUNK)
        ]
    )
    moved = [
        _move(image, *chances, reach=reach.move)
        for image, chances in zip(images, numbers[:, 4:].tolist(), strict=True)
    ]
    return Examples(np.stack(moved)[:, None], digits.labels)


def _warp(images: NDArray[np.uint8], sampled: Integers) -> NDArray[np.uint8]:
    """Scale, then shear, then rotate images (N, H, H) about their middle.

    Sampled are (N, 4) rotations in tenths of a degree, changes of height and width, and shears, in
    thousandths.
    """
    size = images.shape[-1]
    from_middle = 2 * np.arange(size, dtype=np.int64) - (size - 1)  # in half pixels
    height, width, shear = (column[:, None, None] for column in sampled.T[1:])
    cosine, sine = _circle(sampled[:, 0])
    down = cosine * from_middle[:, None] - sine * from_middle
    right = sine * from_middle[:, None] + cosine * from_middle
    right = right - down * shear // 1000
    middle = (size - 1) * _ONE
    return _interpolate(
        images, down * 1000 // (1000 + height) + middle, right * 1000 // (1000 + width) + middle
    )


def _circle(turns: Integers) -> tuple[Integers, Integers]:
    """Cosine and sine (N, 1, 1) of tenths of a degree, in 65,536ths."""
    angles = [math.radians(turn / 10) for turn in turns.tolist()]
    circle = [(round(math.cos(angle) * _ONE), round(math.sin(angle) * _ONE)) for angle in angles]
    cosine, sine = np.array(circle, np.int64).T[..., None, None]
    return cosine, sine


def _interpolate(images: NDArray[np.uint8], down: Integers, right: Integers) -> NDArray[np.uint8]:
    """Brightness at positions (N, H, H) of images (N, H, H), zero outside them."""
    size = images.shape[-1]
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2))).astype(np.int64)
    which = np.arange(len(images))[:, None, None]
    row = np.clip(down >> _UNIT_BITS, -2, size) + 2
    column = np.clip(right >> _UNIT_BITS, -2, size) + 2
    below = (down >> (_UNIT_BITS - 8)) & 255
    beside = (right >> (_UNIT_BITS - 8)) & 255
    upper = padded[which, row, column] * (256 - beside) + padded[which, row, column + 1] * beside
    row += 1
    lower = padded[which, row, column] * (256 - beside) + padded[which, row, column + 1] * beside
    return np.asarray((upper * (256 - below) + lower * below + (1 << 15)) >> 16, np.uint8)


def _move(image: NDArray[np.uint8], down: int, right: int, *, reach: int) -> NDArray[np.uint8]:
    """Move an image (H, W) within the free room around its ink, as two random numbers decide."""
    for axis, number in ((0, down), (1, right)):
        inked = np.flatnonzero(image.any(axis=1 - axis))
        if len(inked):
            before = min(reach, int(inked[0]))
            after = min(reach, image.shape[axis] - 1 - int(inked[-1]))
            image = np.roll(image, number % (before + after + 1) - before, axis)
    return image
