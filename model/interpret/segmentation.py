"""Segment overlapping digits: which classes are present, and which strokes belong to each."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.interpret.masks import INK, Mask, colour, find_masks, share_ink
from model.interpret.presence import most_present
from model.preprocess import Floats

PRESENT = 0.2
"""The length from which `count=auto` may take a class for present."""
EXPLAINED = 0.04
"""`count=auto` keeps a class if its length times the share of the squared brightness that it
explains exceeds this."""

Count = int | Literal["auto"]


class Segmentation(NamedTuple):
    """An image taken apart into M digits, the longest capsule first."""

    labels: NDArray[np.int64]
    """The labels (M,)."""
    masks: Mask
    """The masks (M, H, W)."""
    reconstructions: Floats
    """The reconstructions (M, H, W) in [0, 1], each of one digit alone."""
    ink_shares: Floats
    """The share of the image's ink in each mask, (M,)."""
    explained_ink: float
    """The share of the ink that lies in any mask."""


def candidates(lengths: Floats, count: Count) -> NDArray[np.int64]:
    """Return the labels of the classes that may be present, the longest capsule first.

    Args:
        lengths: (K,).
        count: that many classes; `auto` takes those whose capsules are at least `PRESENT` long.
    """
    if count == "auto":
        count = int((lengths >= PRESENT).sum())
    return most_present(lengths, count)


def segment(
    image: Floats,
    lengths: Floats,
    labels: NDArray[np.int64],
    decoded: Floats,
    *,
    threshold: float,
    count: Count,
) -> Segmentation:
    """Segment an image.

    Args:
        image: (H, W) in [0, 1].
        lengths: (K,).
        labels: (M,), the candidates.
        decoded: (M, H, W), their capsules decoded.
        threshold: of masks; see `find_masks`.
        count: `auto` drops candidates that explain little of the image beside longer ones, perhaps
            all.
    """
    if count == "auto":
        present = _explaining(image, lengths[labels], decoded)
        labels, decoded = labels[present], decoded[present]
    masks = find_masks(image, decoded, threshold=threshold)
    (explained,) = share_ink(image, np.array([masks.any(axis=0)]))
    return Segmentation(labels, masks, decoded, share_ink(image, masks), float(explained))


def _explaining(image: Floats, lengths: Floats, decoded: Floats) -> list[int]:
    """Places of the candidates that are taken for present.

    A capsule that is short, or owes its length to another digit's strokes, must explain more: the
    share of the image's squared brightness by which its reconstruction lowers the squared error of
    those before, times its length, must exceed `EXPLAINED`.
    """
    if not (image >= INK).any():
        return []
    least = EXPLAINED * np.square(image).sum()
    seen, indices = np.zeros_like(image), []
    for index, (length, reconstruction) in enumerate(zip(lengths, decoded, strict=True)):
        both = np.minimum(seen + reconstruction, 1)
        gain = np.square(image - seen).sum() - np.square(image - both).sum()
        if length * gain > least:
            seen = both
            indices.append(index)
    return indices


def paint(image: Floats, reconstructions: Floats) -> Floats:
    """Paint an image (1, H, W) and beside it reconstructions (M, H, W) in colours: (3, H, 2 W)."""
    return np.concatenate((image.repeat(3, axis=0), colour(reconstructions)), axis=2)
