"""Separate ink from paper, whose light may be uneven, and lay it out as training images have it."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from PIL import ImageFilter

from model.preprocess.pixels import (
    Box,
    Floats,
    FoundPolarity,
    Polarity,
    Prepared,
    median,
    resize,
    scale,
    shrink,
    to_image,
)

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
_FAINTEST = 0.04
"""The contrast below which a picture counts as blank, in [0, 1]."""
_THUMBNAIL_SIZE = 48
"""The longest side, in pixels, at which the background's light is measured."""
_BORDER = 0.85
"""The share of the way to the edge from which pixels are the border."""
_EXTREME = 2
"""The percentage of the pixels that are darker, or lighter, than an even background."""
_STROKE_CONTRAST = 0.35
"""The contrast to their median from which border pixels are strokes, in [0, 1]."""


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
    return scale(grown)


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


def find_ink(grey: Floats, polarity: Polarity) -> tuple[Floats, FoundPolarity]:
    """Separate strokes from background.

    Returns:
        (H, W) ink in [0, 1], all zero if the picture is blank; and the polarity found or given.
    """
    smooth = scale(to_image(grey).filter(ImageFilter.BoxBlur(1)))
    ink, found = _separate(smooth - illumination(smooth), polarity)
    if ink.any():
        return ink, found
    # A picture cut close around its strokes has more of them on its border than background.
    return _separate(smooth - flat_background(smooth, polarity), polarity)


def _separate(residual: Floats, polarity: Polarity) -> tuple[Floats, FoundPolarity]:
    """Return what `find_ink` returns, from pixels (H, W) less the background."""
    if polarity == "auto":
        lighter = np.square(residual.clip(min=0)).sum()
        darker = np.square(residual.clip(max=0)).sum()
        polarity = "light-on-dark" if lighter >= darker else "dark-on-light"
    ink = (residual if polarity == "light-on-dark" else -residual).clip(min=0)
    if ink.max() < _FAINTEST:
        return np.zeros_like(ink), polarity
    threshold = _otsu(ink)
    strokes = ink > threshold
    noise = 1.4826 * median(np.abs(residual[~strokes])) if not strokes.all() else 0.0
    level = float(np.percentile(ink[strokes], 75)) if strokes.any() else 0.0
    if level < max(_FAINTEST, 4 * noise):
        return np.zeros_like(ink), polarity
    low, high = max(3 * noise, 0.2 * level), 0.8 * level
    return ((ink - low) / (max(high, low + 1e-3) - low)).clip(0, 1).astype(np.float32), polarity


def _otsu(ink: Floats) -> float:
    """The threshold that separates ink (H, W) best into two groups (Otsu, 1979)."""
    edges = np.histogram_bin_edges(ink, bins=128, range=(0, max(float(ink.max()), 1e-6)))
    middles = (edges[:-1] + edges[1:]) / 2
    # The histogram, accumulated: sorting is several times as fast as np.histogram.
    below = np.append(np.searchsorted(np.sort(ink, axis=None), edges[1:-1]), ink.size)
    above = ink.size - below
    sums = (np.diff(below, prepend=0) * middles).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * np.square(sums / below - (sums[-1] - sums) / above)
    return float(edges[1:][np.nanargmax(between[:-1])])


def illumination(grey: Floats) -> Floats:
    """Fit the picture's background by a smooth surface: a quadratic, without the strokes.

    Starts from the border, which rarely holds strokes, then takes in all pixels near the surface.
    """
    thumbnail = shrink(grey, _THUMBNAIL_SIZE)
    x, y = _coordinates(thumbnail)
    values = thumbnail.ravel().astype(np.float64)
    terms = np.stack(np.broadcast_arrays(1.0, x, y, x * y, x * x, y * y), -1).reshape(-1, 6)
    border = (np.maximum(np.abs(x), np.abs(y)) > _BORDER).ravel()
    background = border & (np.abs(values - median(values[border])) < _STROKE_CONTRAST)
    if not background.any():  # half of the border is dark and half is light
        background = border
    solution = np.zeros(6)
    for _ in range(4):
        known = terms[background]
        # In narrow pictures x * x is as good as constant: prefer the constant.
        ridge = 1e-6 * len(known) * np.diag([0.0, 1, 1, 1, 1, 1])
        solution = np.linalg.solve(known.T @ known + ridge, known.T @ values[background])
        distance = np.abs(values - terms @ solution)
        spread = 1.4826 * median(distance[background])
        near = distance < max(3 * spread, 0.02)
        if not near.any() or np.array_equal(near, background):
            break
        background = near
    x, y = _coordinates(grey)
    level, across, down, twist, across_squared, down_squared = solution.astype(np.float32)
    return np.asarray(
        level + x * (across + across_squared * x) + y * (down + down_squared * y) + twist * (x * y)
    )


def flat_background(grey: Floats, polarity: Polarity) -> float:
    """Estimate the light of an even background: the picture without its darkest or lightest part.

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
