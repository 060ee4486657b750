from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from model.bundle import Bundle
from model.runtime import Runtime
from training.data.datasets import Examples
from training.data.pairs import fixed_pairs
from training.publication.figures import draw_segmentation


def test_the_figure_has_a_column_for_each_pair(
    strokes: Examples, strokes_bundle_path: Path, tmp_path: Path
) -> None:
    """Input, drawing, masks and a class that is not there, one below the other."""
    runtime = Runtime(Bundle.open(strokes_bundle_path), device="cpu", threads=1)
    pairs = fixed_pairs(strokes, 4, size=36, shift_px=2, seed=1)
    draw_segmentation(runtime, pairs, tmp_path / "figure.png")
    figure = np.asarray(Image.open(tmp_path / "figure.png"))
    cell = 3 * 36 + 8
    assert (92 + 4 * cell, 3) == figure.shape[1:]
    pictures = figure[44 : 44 + 4 * cell, 92:].reshape(4, cell, 4, cell, 3).swapaxes(1, 2)
    shown = pictures[0, :, :108:3, :108:3, 0]
    np.testing.assert_array_equal(pairs.images, shown)
    colours = np.ptp(pictures[1:3, :, :108, :108].astype(int), axis=-1).max(axis=(2, 3))
    assert (colours > 100).all()
