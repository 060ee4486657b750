"""What comes in, and what goes out."""

from __future__ import annotations

from pathlib import Path

from model.canvas import enlarge, png
from model.preprocess import Floats
from service.errors import Problem

SAMPLES = Path(__file__).parent.parent / "samples"
"""One real digit of each class, 28x28 greyscale PNG; folders of other data sets' pictures."""
Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""


def encode_png(image: Floats, *, scale: int = 1) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG, each pixel enlarged to `scale` squared."""
    return png(enlarge(image, scale))
