"""Figures of bundles, as the analysis draws them for trained networks."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from model.bundle.figures import EXPLAINED

SIZE = (900, 375)
"""Width and height in pixels."""


def draw_explained(bundle: Path, colour: str = "white") -> bytes:
    """Put a figure of one colour into the folder of a bundle, and return its file."""
    Image.new("RGB", SIZE, colour).save(bundle / EXPLAINED)
    return (bundle / EXPLAINED).read_bytes()
