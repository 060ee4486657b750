"""Which pixels of a picture belong to which of its digits: one rule for service and evaluation.

A pixel belongs to a digit where the picture has ink and the digit's reconstruction, decoded from
its capsule alone, is brighter than the bundle's threshold. It may belong to several, or to none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

Mask = NDArray[np.bool_]

INK = 0.1
"""Brightness, of 1, from which a pixel is ink."""
NEW_INK = 0.05
"""Share of a picture's ink that a digit has to explain alone, beside longer ones, to be there."""
_COLOURS = np.array(
    [
        (1.0, 0.2, 0.2),
        (0.2, 1.0, 0.2),
        (0.3, 0.5, 1.0),
        (1.0, 0.8, 0.1),
        (1.0, 0.3, 1.0),
        (0.2, 0.9, 0.9),
        (1.0, 0.5, 0.1),
        (0.6, 0.9, 0.4),
        (0.7, 0.5, 1.0),
        (0.8, 0.8, 0.8),
    ],
    np.float32,
)
"""Red, green, ... by place; where red and green overlap the sum is yellow."""


def find_masks(image: Floats, reconstructions: Floats, *, threshold: float) -> Mask:
    """Pixels of each digit.

    Args:
        image: (..., H, W) in [0, 1], light strokes on dark.
        reconstructions: (..., M, H, W) in [0, 1], each of one digit alone.
        threshold: of the reconstructions.

    Returns:
        (..., M, H, W).
    """
    return np.asarray((image[..., None, :, :] >= INK) & (reconstructions >= threshold))


def share_ink(image: Floats, masks: Mask) -> Floats:
    """How much of the ink of an image (H, W) lies in each mask (M, H, W).

    Returns:
        (M,) in [0, 1]; zeros for an image without ink. Ink in several masks counts for each.
    """
    strokes = np.where(image >= INK, image, 0)
    total = float(strokes.sum())
    shares: Floats = (masks * strokes).sum(axis=(1, 2)) / np.float32(total or 1)
    return shares


def explain_away(image: Floats, masks: Mask) -> list[int]:
    """Places of the masks (M, H, W) that explain ink of an image (H, W) which none before does.

    A long capsule may owe its length to the strokes of another digit, and is then left out.
    """
    explained = np.zeros_like(image, dtype=np.bool_)
    places = []
    for place, mask in enumerate(masks):
        (new,) = share_ink(image, (mask & ~explained)[None])
        if new >= NEW_INK:
            places.append(place)
            explained |= mask
    return places


def colour(layers: Floats) -> Floats:
    """Layers (M, H, W) in [0, 1], each in its own colour, added up: (3, H, W) in [0, 1]."""
    colours = _COLOURS[np.arange(len(layers)) % len(_COLOURS)]
    return np.tensordot(colours, layers, axes=(0, 0)).clip(0, 1).astype(np.float32)
