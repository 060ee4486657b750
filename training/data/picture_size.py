"""The size at which a network sees the pictures of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median_low

KEPT_PX = 96
"""Pictures keep their size up to this many pixels along the longer side; larger ones are shrunk."""
MAX_RATIO = 2
"""The longer side of a network's image is at most so many times the shorter one, by default."""
_SLIGHT = 1 / 3
"""The share of a picture that may be cropped without a notice."""


def choose_size(sizes: Iterable[tuple[int, int]], most: int = KEPT_PX) -> tuple[int, int]:
    """Choose the (height, width) at which a network sees pictures of these (width, height).

    Pictures of one size keep it, or are shrunk until their longer side has `most` pixels. Those
    that are more oblong than MAX_RATIO are cropped to it. Pictures of several sizes become squares:
    the median of their shorter sides, at most `most` pixels.
    """
    counts = Counter(sizes)
    if len(counts) == 1:
        ((width, height),) = counts
        width, height = min(width, MAX_RATIO * height), min(height, MAX_RATIO * width)
        factor = min(1.0, most / max(width, height))
        return max(1, round(height * factor)), max(1, round(width * factor))
    side = min(most, median_low(min(size) for size in counts.elements()))
    return side, side


def describe_crop(sizes: Iterable[tuple[int, int]], height: int, width: int) -> str | None:
    """How much of the median picture is cropped, in a sentence; None up to _SLIGHT.

    Args:
        sizes: the (width, height) of the pictures, which are cropped to the shape of the network's
            image.
        height: of the network's image.
        width: likewise.
    """
    ratio = width / height
    kept = [min(own[0] / own[1], ratio) / max(own[0] / own[1], ratio) for own in sizes]
    lost = 1 - median_low(kept)
    if lost <= _SLIGHT:
        return None
    return (
        f"pictures are cropped around their centre to {width}x{height} px, and half of them lose "
        f"{100 * lost:.0f} % or more: --set network.height=H --set network.width=W chooses another "
        "shape"
    )
