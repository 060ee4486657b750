"""Arrange strokes as in the training images."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from PIL import ImageFilter

from model.preprocess.ink import find_ink
from model.preprocess.pixels import Floats, resize, shrink, to_floats, to_image
from model.preprocess.prepared import Box, Polarity, Prepared

StrokeRule = Literal["digit", "pair"]

_BOX: dict[StrokeRule, float] = {"digit": 20 / 28, "pair": 23 / 36}
"""The share of the image's side that the longer side of the strokes takes.

20 of 28 pixels are what MNIST was made with (LeCun, Cortes and Burges). Two such digits, each
moved by up to four pixels on 36x36, take 23 on average.
"""
_WORKING_SIZE = 256
"""The longest side, in pixels, at which strokes are found."""
_THINNEST = 2.0
"""The width in pixels below which a fitted stroke is thickened. MNIST's are two to four wide."""


def fit_strokes(
    grey: Floats, size: int, polarity: Polarity, *, rule: StrokeRule = "digit"
) -> Prepared:
    """Find the strokes and lay them out as the training images have them.

    Args:
        grey: (H, W) in [0, 1].
        size: of the result, in pixels.
        polarity: of the picture, or `auto`.
        rule: `digit` makes the longer side of the strokes' box 20 of 28 pixels, and their centre
            of mass the centre, as MNIST does; `pair` makes it 23 of 36, and its middle the centre.
    """
    small = shrink(grey, _WORKING_SIZE)
    ink, found = find_ink(small, polarity)
    box = _box(ink)
    if box is None:
        return Prepared(np.zeros((1, size, size), np.float32), rule, found, None)
    source = box.scaled(grey.shape[1] / small.shape[1], grey.shape[0] / small.shape[0])
    target = _BOX[rule] * size
    ink = _thicken(ink, box, target)
    box = cast("Box", _box(ink))
    crop = ink[box.top : box.bottom, box.left : box.right]
    factor = target / max(crop.shape)
    scaled = resize(crop, *(max(1, round(side * factor)) for side in crop.shape))
    image = _centre(scaled / max(scaled.max(), 0.5), size, by_mass=rule == "digit")
    return Prepared(image[None], rule, found, source)


def _box(ink: Floats) -> Box | None:
    """The rectangle around what is at least half inked, if anything is."""
    strokes = ink > 0.5
    rows, columns = np.flatnonzero(strokes.any(axis=1)), np.flatnonzero(strokes.any(axis=0))
    if not len(rows):
        return None
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _thicken(ink: Floats, box: Box, target: float) -> Floats:
    """Widen strokes that would become thinner than MNIST's when the box is scaled to `target`."""
    strokes = ink > 0.5
    outline = int((strokes[1:] != strokes[:-1]).sum() + (strokes[:, 1:] != strokes[:, :-1]).sum())
    # A stroke of length L and width w has area Lw; its outline, counted along rows and columns,
    # is 2L times 4 / pi on average over directions.
    width = float(strokes.sum()) / max(outline * np.pi / 8, 1e-6)
    longest = max(box.right - box.left, box.bottom - box.top)
    missing = _THINNEST * longest / target - width
    if missing < 1:
        return ink
    reach = min(round(missing / 2), 15)
    padded = np.pad(ink, reach)
    grown = to_image(padded).filter(ImageFilter.MaxFilter(2 * reach + 1))
    return to_floats(grown)


def _centre(strokes: Floats, size: int, *, by_mass: bool) -> Floats:
    """Lay strokes on an empty square, their centre of mass or of their box in its middle."""
    height, width = strokes.shape
    row, column = (height - 1) / 2, (width - 1) / 2
    if by_mass:
        total = float(strokes.sum())
        row = float((strokes.sum(axis=1) * np.arange(height)).sum()) / total
        column = float((strokes.sum(axis=0) * np.arange(width)).sum()) / total
    top = min(max(round((size - 1) / 2 - row), 0), size - height)
    left = min(max(round((size - 1) / 2 - column), 0), size - width)
    square = np.zeros((size, size), np.float32)
    square[top : top + height, left : left + width] = strokes
    return square
