from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from model.bundle import Bundle
from model.dimensions import PoseDimension
from model.sweep import Sweep
from model.sweep_grid import draw_sweep


def test_rows_are_as_wide_as_their_names(bundle_path: Path) -> None:
    """A dimension with a name needs more room for it; the grid itself stays."""
    manifest = Bundle.open(bundle_path).manifest
    named = replace(manifest, pose_dimensions=(PoseDimension(7, 3, "slant", 1, 0.5),))
    images = np.zeros((1, 11, 28, 28), np.float32)
    sweep = Sweep((3,), tuple(range(-5, 6)))
    plain, told, other = (
        draw_sweep(images, sweep, manifest=of, label=label, scale=1)
        for of, label in ((manifest, 7), (named, 7), (named, 8))
    )
    assert plain.height == told.height
    assert plain.size == other.size
    assert told.width > plain.width + 40
