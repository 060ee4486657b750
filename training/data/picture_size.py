"""The size at which a network sees the pictures of a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median_low

KEPT_PX = 96
"""Pictures keep their size up to this many pixels along the longer side; larger ones are shrunk."""


def choose_size(sizes: Iterable[tuple[int, int]], most: int = KEPT_PX) -> tuple[int, int]:
    """Choose the (height, width) at which a network sees pictures of these (width, height).

    Pictures of one size keep it, or are shrunk until their longer side has `most` pixels. Pictures
    of several sizes become squares: the median of their shorter sides, at most `most` pixels.
    """
    counts = Counter(sizes)
    if len(counts) == 1:
        ((width, height),) = counts
        factor = min(1.0, most / max(width, height))
        return max(1, round(height * factor)), max(1, round(width * factor))
    side = min(most, median_low(min(size) for size in counts.elements()))
    return side, side
