from __future__ import annotations

import numpy as np

from model.canvas import enlarge


def test_pixels_are_enlarged_in_grey_and_in_colour() -> None:
    """Each becomes a square; three channels become red, green and blue."""
    grey = enlarge(np.array([[[0.0, 1.0]]], np.float32), 3)
    assert ("L", (6, 3)) == (grey.mode, grey.size)
    assert (0, 255) == (grey.getpixel((2, 2)), grey.getpixel((3, 0)))
    colour = np.zeros((3, 1, 2), np.float32)
    colour[1, 0, 1] = 2.0  # brighter than white is white
    enlarged = enlarge(colour, 2)
    assert ("RGB", (4, 2)) == (enlarged.mode, enlarged.size)
    assert (0, 255, 0) == enlarged.getpixel((3, 1))
