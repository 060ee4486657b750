"""Separates ink from paper."""

from __future__ import annotations

import numpy as np
from PIL import ImageFilter

from model.preprocess.ground import flat_ground, illumination
from model.preprocess.median import median
from model.preprocess.pixels import Floats, to_floats, to_image
from model.preprocess.polarity import FoundPolarity, Polarity

_FAINTEST = 0.04
"""Contrast, of 1, below which a picture counts as blank."""


def find_ink(grey: Floats, polarity: Polarity) -> tuple[Floats, FoundPolarity]:
    """Separate strokes from ground.

    Returns:
        (H, W) ink in [0, 1], all zero if the picture is blank; and the polarity found or given.
    """
    smooth = to_floats(to_image(grey).filter(ImageFilter.BoxBlur(1)))
    ink, found = _separate(smooth - illumination(smooth), polarity)
    if ink.any():
        return ink, found
    # A picture cut close around its strokes has more of them on its border than ground.
    return _separate(smooth - flat_ground(smooth, polarity), polarity)


def _separate(residual: Floats, polarity: Polarity) -> tuple[Floats, FoundPolarity]:
    """What `find_ink` returns, of how much lighter than the ground (H, W) pixels are."""
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
