"""Images of two digits: overlay them, and assign the pixels to the digits again.

Service, training and evaluation have one rule.

Each digit is reconstructed from its capsule alone. The brightness of each pixel is divided among
the digits in proportion to the brightness of their reconstructions there. A pixel belongs to the
digits that get enough of the brightness around it: to one, to several, or to none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

Mask = NDArray[np.bool_]

SIZE = 36
"""The height and width of an image of two digits, in pixels."""
DIGIT_SIZE = 28
MAX_SHIFT_PX = (SIZE - DIGIT_SIZE) // 2
"""The largest shift of a digit from the middle. Two digits may lie twice as far apart."""
INK = 0.1
"""The brightness from which a pixel is ink, in [0, 1]."""
FAINT = 0.05
"""The sum of reconstructions below which part of a pixel goes to no digit."""
_NEIGHBOURS = (0.25, 0.5, 0.25)
"""The weights of the smoothing, along rows and along columns."""
_COLOURS = np.array(
    [
        *((1.0, 0.2, 0.2), (0.2, 1.0, 0.2), (0.3, 0.5, 1.0), (1.0, 0.8, 0.1), (1.0, 0.3, 1.0)),
        *((0.2, 0.9, 0.9), (1.0, 0.5, 0.1), (0.6, 0.9, 0.4), (0.7, 0.5, 1.0), (0.8, 0.8, 0.8)),
    ],
    np.float32,
)
"""Red, green, ... by place; where red and green overlap the sum is yellow."""


def overlay(first: Floats, second: Floats, *, dx: int, dy: int) -> Floats:
    """Add up two digits (1, 28, 28) in one image (1, 36, 36), cut off at white.

    Args:
        dx: pixels by which the second lies right of the first; -8 to 8. Each moves half of it.
        dy: the same, down.
    """
    total = np.zeros((1, SIZE, SIZE), np.float32)
    places = (-(dy // 2), -(dx // 2)), (dy - dy // 2, dx - dx // 2)
    for digit, (down, right) in zip((first, second), places, strict=True):
        top, left = MAX_SHIFT_PX + down, MAX_SHIFT_PX + right
        total[:, top : top + DIGIT_SIZE, left : left + DIGIT_SIZE] += digit
    return np.minimum(total, 1)


def find_masks(image: Floats, reconstructions: Floats, *, threshold: float) -> Mask:
    """Find the pixels of each digit.

    What each digit gets is smoothed over neighbours, because reconstructed strokes lie a little
    next to the true ones.

    Args:
        image: (..., H, W) in [0, 1], light strokes on dark.
        reconstructions: (..., M, H, W) in [0, 1], each of one digit alone. The reconstructions
            divide the ink, so the reconstruction of an absent digit takes ink from the others.
        threshold: share of the brightness around a pixel that makes it a digit's.

    Returns:
        (..., M, H, W).
    """
    strokes = np.where(image >= INK, image, 0)[..., None, :, :]
    total = reconstructions.sum(axis=-3, keepdims=True)
    parts = strokes * reconstructions / np.maximum(total, FAINT)
    return np.asarray((strokes > 0) & (smooth(parts) >= threshold * smooth(strokes)))


def share_ink(image: Floats, masks: Mask) -> Floats:
    """Compute the share of an image's ink (H, W) in each mask (M, H, W).

    Returns:
        (M,) in [0, 1]; zeros for an image without ink. Ink in several masks counts for each.
    """
    strokes = np.where(image >= INK, image, 0)
    total = float(strokes.sum())
    shares: Floats = (masks * strokes).sum(axis=(1, 2)) / np.float32(total or 1)
    return shares


def colour(images: Floats) -> Floats:
    """Add up images (M, H, W) in [0, 1], each in a colour of its own: (3, H, W) in [0, 1]."""
    colours = _COLOURS[np.arange(len(images)) % len(_COLOURS)]
    return np.tensordot(colours, images, axes=(0, 0)).clip(0, 1).astype(np.float32)


def smooth(images: Floats) -> Floats:
    """Average each pixel (..., H, W) with its eight neighbours, weighted; dark beyond the edge."""
    before, middle, after = _NEIGHBOURS
    around = np.pad(images, ((0, 0),) * (images.ndim - 2) + ((1, 1), (1, 1)))
    rows = before * around[..., :-2, :] + middle * around[..., 1:-1, :] + after * around[..., 2:, :]
    return np.asarray(before * rows[..., :-2] + middle * rows[..., 1:-1] + after * rows[..., 2:])
