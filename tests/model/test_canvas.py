from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from model.canvas import ACCENT, PAPER, png, save_small


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
