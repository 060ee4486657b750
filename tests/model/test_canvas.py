from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from model.canvas import ACCENT, PAPER, enlarge, png, save_small


def test_a_small_png_keeps_greys_and_colours(tmp_path: Path) -> None:
    """Greys move by less than one step of thirty, colours not at all; the file is smaller."""
    picture = Image.new("RGB", (64, 64), PAPER)
    noise = np.random.default_rng(0).integers(0, 256, (64, 32), np.uint8)
    picture.paste(Image.fromarray(noise), (0, 0))
    picture.paste(ACCENT, (40, 0, 50, 64))
    save_small(picture, tmp_path / "small.png")
    with Image.open(tmp_path / "small.png") as small:
        kept = np.asarray(small.convert("RGB")).astype(int)
    moved = np.abs(kept - np.asarray(picture).astype(int))
    assert 9 > moved[:, :32].max()
    assert 0 == moved[:, 32:].max()
    assert len(png(picture)) > (tmp_path / "small.png").stat().st_size


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
