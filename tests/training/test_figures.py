from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle
from tests.health import HEALTH
from training.answers import WrongAnswers
from training.data.datasets import DIGITS
from training.figures import FIGURES, MAX_WRONG, draw_figures, draw_wrong
from training.metrics import METRICS

BLUE = (31, 119, 180)
"""The first line of a chart."""
GREY = 90


def pixels(path: Path) -> np.ndarray:
    """(H, W, 3) of a small file."""
    assert path.stat().st_size < 100_000
    with Image.open(path) as picture:
        assert "PNG" == picture.format
        return np.asarray(picture.convert("RGB")).astype(int)


def share(picture: np.ndarray, colour: tuple[int, int, int]) -> float:
    """Of the pixels, those of nearly this colour."""
    return float((np.abs(picture - colour).max(axis=2) < 12).mean())


def rectangles(mask: np.ndarray) -> int:
    """How many filled rectangles there are of at least 12x12 pixels: their upper left corners."""
    full = np.lib.stride_tricks.sliding_window_view(np.pad(mask, 1), (12, 12)).all(axis=(2, 3))
    return int((full[1:, 1:] & ~full[:-1, 1:] & ~full[1:, :-1]).sum())


def wrong_answers(count: int, channels: int = 1) -> WrongAnswers:
    """Plain grey images, all called 1 in place of 0."""
    return WrongAnswers(
        np.full((count, channels, 28, 28), GREY, np.uint8),
        np.zeros((count, 1), np.int64),
        np.ones((count, 1), np.int64),
        np.full((count, 2), 0.5, np.float32),
    )


@pytest.mark.parametrize(("count", "channels"), [(1, 1), (7, 3), (MAX_WRONG + 1, 1)])
def test_every_wrong_image_is_drawn(count: int, channels: int, tmp_path: Path) -> None:
    """Each as large as the others, up to so many."""
    draw_wrong(wrong_answers(count, channels), DIGITS, tmp_path / "wrong.png")
    drawn = (np.abs(pixels(tmp_path / "wrong.png") - GREY) < 5).all(axis=2)
    assert min(count, MAX_WRONG) == rectangles(drawn)


def test_what_is_on_record_is_drawn(bundle_path: Path, tmp_path: Path) -> None:
    """Training curves and health, each a row; nothing of a bundle without records."""
    bundle = Bundle.open(Path(shutil.copytree(bundle_path, tmp_path / "bundle")))
    bundle = replace(bundle, manifest=replace(bundle.manifest, health=None, confidence=None))
    (bundle.path / METRICS).unlink(missing_ok=True)
    draw_figures(bundle)
    assert not (bundle.path / FIGURES).exists()
    lines = [
        {"step": n, "epoch": n, "images_per_s": 9, "spread_loss": 1 / n, "learning_rate": 1 / n}
        for n in range(1, 5)
    ]
    (bundle.path / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    draw_figures(bundle)
    curves = pixels(bundle.path / FIGURES)
    draw_figures(replace(bundle, manifest=replace(bundle.manifest, health=HEALTH)))
    both = pixels(bundle.path / FIGURES)
    assert 2 * len(curves) == len(both)
    assert 0 < share(curves, BLUE)
