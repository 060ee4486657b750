from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from model.bundle import Bundle
from model.bundle.dimensions import PoseDimension
from model.interpret.sweep import Sweep
from model.interpret.sweep_grid import draw_sweep


def test_rows_are_as_wide_as_their_names(bundle_path: Path) -> None:
    """A dimension with a name needs more room for it; the grid itself stays."""
    manifest = Bundle.open(bundle_path).manifest
    named = replace(manifest, pose_dimensions=(PoseDimension(7, 3, "slant", 1, 0.5),))
    images = np.zeros((1, 11, 1, 28, 28), np.float32)
    sweep = Sweep((3,), tuple(range(-5, 6)))
    plain, told, other = (
        draw_sweep(images, sweep, manifest=of, label=label, scale=1)
        for of, label in ((manifest, 7), (named, 7), (named, 8))
    )
    assert plain.height == told.height
    assert plain.size == other.size
    assert told.width > plain.width + 40


def test_a_grid_of_colour_images_has_their_shape(colour_bundle_path: Path) -> None:
    """Wide images stand side by side and under one another, in colour."""
    manifest = Bundle.open(colour_bundle_path).manifest
    images = np.zeros((2, 3, 3, 24, 32), np.float32)
    images[1, 2, 0] = 1
    sweep = Sweep((0, 1), (-0.1, 0.0, 0.1))
    grid = draw_sweep(images, sweep, manifest=manifest, label=0, scale=2)
    red = np.argwhere((np.asarray(grid) == (255, 0, 0)).all(axis=2))
    assert [48, 64] == (red.max(axis=0) - red.min(axis=0) + 1).tolist()
