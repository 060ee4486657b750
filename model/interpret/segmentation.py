"""Taking overlapping digits apart: which classes are there, and which strokes are whose."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.interpret.masks import Mask, colour, explain_away, find_masks, share_ink
from model.preprocess import Floats

PRESENT = 0.5
"""Length from which `count=auto` may take a class for present: halfway between the margins."""

Count = int | Literal["auto"]


class Segmentation(NamedTuple):
    """An image taken apart into M digits, the longest capsule first."""

    labels: NDArray[np.int64]
    """(M,)."""
    masks: Mask
    """(M, H, W)."""
    reconstructions: Floats
    """(M, H, W) in [0, 1], each of one digit alone."""
    ink_shares: Floats
    """(M,): how much of the image's ink lies in each mask."""
    explained_ink: float
    """How much of it lies in any mask."""


def candidates(lengths: Floats, count: Count) -> NDArray[np.int64]:
    """Labels of the classes that may be present, the longest capsule first.

    Args:
        lengths: (K,).
        count: that many classes; `auto` takes those whose capsules are at least `PRESENT` long.
    """
    if count == "auto":
        count = int((lengths >= PRESENT).sum())
    return np.argsort(-lengths, kind="stable")[:count]


def segment(
    image: Floats, labels: NDArray[np.int64], drawn: Floats, *, threshold: float, count: Count
) -> Segmentation:
    """Take an image apart.

    Args:
        image: (H, W) in [0, 1].
        labels: (M,), its candidates.
        drawn: (M, H, W), their capsules decoded.
        threshold: how bright a reconstruction is where it has ink.
        count: `auto` drops candidates that explain no ink beside longer ones, perhaps all.
    """
    masks = find_masks(image, drawn, threshold=threshold)
    if count == "auto":
        present = explain_away(image, masks)
        labels, drawn, masks = labels[present], drawn[present], masks[present]
    (explained,) = share_ink(image, np.array([masks.any(axis=0)]))
    return Segmentation(labels, masks, drawn, share_ink(image, masks), float(explained))


def paint(image: Floats, reconstructions: Floats) -> Floats:
    """An image (1, H, W) and beside it reconstructions (M, H, W), each coloured: (3, H, 2 W)."""
    return np.concatenate((image.repeat(3, axis=0), colour(reconstructions)), axis=2)
