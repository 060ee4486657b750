"""Training curves as a PNG."""

from __future__ import annotations

import json
from pathlib import Path

from model.plot import Chart, Line, Point, save_charts

PANELS = {
    "margin_loss": "margin loss",
    "reconstruction_loss": "reconstruction loss (squared error an image)",
    "validation_error_percent": "validation error, %",
    "validation_digit_error_percent": "validation error of each digit of a pair, %",
    "learning_rate": "learning rate",
}
"""Keys of metrics.jsonl that are drawn, one below the other, and their titles."""


def draw_curves(metrics: Path, target: Path, *, title: str) -> None:
    """Draw every measure of a run over its epochs, on logarithmic scales.

    Args:
        metrics: the run's metrics.jsonl; measures that it does not hold are left out.
        target: PNG file to write.
        title: above the picture.
    """
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    series = {
        heading: [Point(line["epoch"], line[key]) for line in lines if line.get(key, 0) > 0]
        for key, heading in PANELS.items()
    }
    charts = [
        Chart(heading, [Line(points)], x_title="epoch", logarithmic=True)
        for heading, points in series.items()
        if points
    ]
    save_charts(charts, target, title=title)
