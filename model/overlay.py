"""Overlay one digit on another, as MultiMNIST does."""

from __future__ import annotations

import numpy as np

from model.preprocess import Floats

SIZE = 36
"""The height and width of an image of two digits, in pixels."""
DIGIT_SIZE = 28
MAX_SHIFT_PX = (SIZE - DIGIT_SIZE) // 2
"""The largest shift of a digit from the middle. Two digits may lie twice as far apart."""


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
