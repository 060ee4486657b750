from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.run.curves import draw_curves


def write_metrics(path: Path, values: list[float]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"epoch": epoch, "margin_loss": value}) + "\n"
            for epoch, value in enumerate(values)
        )
    )
    return path


def line_rows(picture: Path) -> list[int]:
    """The row of the curve in each column that it crosses."""
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"), int)
    blue = (pixels[..., 2] > 150) & (pixels[..., 0] < 100)
    return [int(np.flatnonzero(column).mean()) for column in blue.T if column.any()]


def height(picture: Path) -> int:
    with Image.open(picture) as image:
        return image.height


def test_falling_loss_falls_in_the_picture(tmp_path: Path) -> None:
    """The curve starts high on the left and ends low on the right."""
    metrics = write_metrics(tmp_path / "metrics.jsonl", [1.0, 0.1, 0.01])
    draw_curves(metrics, tmp_path / "curves.png", title="a run")
    rows = line_rows(tmp_path / "curves.png")
    assert np.diff(rows).min() >= -1  # the dot at the end is a pixel wider than the line
    assert rows[-1] - rows[0] > 100


def test_only_measures_that_exist_are_drawn(tmp_path: Path) -> None:
    """Two measures take two panels, one takes one."""
    one = write_metrics(tmp_path / "one.jsonl", [1.0, 0.5])
    both = tmp_path / "both.jsonl"
    both.write_text(one.read_text() + json.dumps({"epoch": 1, "learning_rate": 0.1}) + "\n")
    for metrics in (one, both):
        draw_curves(metrics, metrics.with_suffix(".png"), title="a run")
    assert height(both.with_suffix(".png")) > height(one.with_suffix(".png"))


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.5]], ids=["none", "one", "constant"])
def test_short_runs_are_drawn_too(tmp_path: Path, values: list[float]) -> None:
    """A run that was stopped early has a picture, not an error."""
    draw_curves(write_metrics(tmp_path / "m.jsonl", values), tmp_path / "c.png", title="a run")
    assert height(tmp_path / "c.png") > 0
