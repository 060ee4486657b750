"""Measure which ink matters: a patch of background slides over the image, which is encoded again.

Occlusion sensitivity (Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional
Networks", section 4.2), for presence and for each number of a pose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

MAX_PATCHES = 256
"""The most patches for one image, each of which is encoded."""


@dataclass(frozen=True)
class Occlusion:
    """The positions of the patch. Every pixel is covered at least once."""

    patch: int
    """The side of the patch, in pixels."""
    stride: int
    """The pixels from one position to the next; fewer before the last ones."""
    tops: tuple[int, ...]
    lefts: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of positions."""
        return len(self.tops), len(self.lefts)

    def images(self, image: Floats, background: Floats) -> Floats:
        """Return the image (C, H, W) with the patch at each position, row by row: (M, C, H, W).

        Args:
            background: (C,), what the patch shows.
        """
        rows, columns = self.shape
        images = np.broadcast_to(image, (rows, columns, *image.shape)).copy()
        for row, top in enumerate(self.tops):
            for column, left in enumerate(self.lefts):
                area = np.s_[row, column, :, top : top + self.patch, left : left + self.patch]
                images[area] = background[:, None, None]
        return images.reshape(-1, *image.shape)

    def on_pixels(self, changes: Floats) -> Floats:
        """The mean change (H, W) at each pixel, over the places (M,) whose patch covers it."""
        size = self.tops[-1] + self.patch, self.lefts[-1] + self.patch
        total, count = np.zeros(size), np.zeros(size)
        by_position = changes.reshape(self.shape)
        for row, top in enumerate(self.tops):
            for column, left in enumerate(self.lefts):
                area = np.s_[top : top + self.patch, left : left + self.patch]
                total[area] += by_position[row, column]
                count[area] += 1
        return np.asarray(total / count, np.float32)


def plan_occlusion(
    height: int, width: int, *, patch: int | None = None, stride: int | None = None
) -> Occlusion:
    """Place a square patch on an image, `stride` pixels apart, both edges included.

    By default the patch is a fifth of the image's shorter side, the stride a third of the patch.

    Raises:
        ValueError: the patch is larger than the image, the stride larger than the patch, or there
            are more than MAX_PATCHES places.
    """
    patch = patch or max(1, round(min(height, width) / 5))
    stride = stride or math.ceil(patch / 3)
    if patch > min(height, width):
        raise ValueError(f"a patch of {patch} pixels is larger than an image of {height}x{width}")
    if stride > patch:
        raise ValueError(f"with a stride of {stride} a patch of {patch} pixels leaves gaps")
    tops, lefts = (_positions(size - patch, stride) for size in (height, width))
    if len(tops) * len(lefts) > MAX_PATCHES:
        raise ValueError(
            f"a patch of {patch} pixels has {len(tops) * len(lefts):,} places on an image of "
            f"{height}x{width}; there may be {MAX_PATCHES}: take a larger stride or patch"
        )
    return Occlusion(patch, stride, tops, lefts)


def find_background(image: Floats, *, strokes: bool) -> Floats:
    """Find the colour behind an image (C, H, W): black if strokes are light, else its mean.

    Returns:
        (C,).
    """
    return np.zeros(len(image), np.float32) if strokes else np.asarray(image.mean(axis=(1, 2)))


def is_altered(image: Floats, occluded: Floats) -> NDArray[np.bool_]:
    """Return whether each patch hides anything, (M,), in images (M, C, H, W)."""
    return np.asarray((occluded != image).any(axis=(1, 2, 3)))


def _positions(room: int, stride: int) -> tuple[int, ...]:
    """0, stride, ... and `room`."""
    return (*range(0, room, stride), room)
