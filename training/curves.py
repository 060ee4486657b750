"""Training curves as a PNG, drawn with Pillow alone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

PANELS = {
    "margin_loss": "margin loss",
    "reconstruction_loss": "reconstruction loss (squared error an image)",
    "validation_error_percent": "validation error, %",
    "validation_digit_error_percent": "validation error of each digit of a pair, %",
    "learning_rate": "learning rate",
}
"""Keys of metrics.jsonl that are drawn, one below the other, and their titles."""

_WIDTH, _HEIGHT = 900, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 34, 34
_INK, _GRID, _LINE = "#222222", "#dddddd", "#1f5fbf"


class Point(NamedTuple):
    """One measurement."""

    epoch: float
    value: float


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
    drawn = {heading: points for heading, points in series.items() if points}
    picture = Image.new("RGB", (_WIDTH, _HEIGHT * max(1, len(drawn)) + _TOP), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((_LEFT, 8), title, _INK, ImageFont.load_default(18))
    for row, (heading, points) in enumerate(drawn.items()):
        _draw_panel(draw, heading, points, top=_TOP + row * _HEIGHT)
    picture.save(target)


def _draw_panel(
    draw: ImageDraw.ImageDraw, heading: str, points: Sequence[Point], *, top: int
) -> None:
    font = ImageFont.load_default(13)
    values = [point.value for point in points]
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = (low, high) if high - low > 0.05 else (low - 0.05, high + 0.05)
    last = max(point.epoch for point in points) or 1

    def place(point: Point) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * point.epoch / last
        height = _HEIGHT - _TOP - _BOTTOM
        return x, top + _TOP + height * (high - math.log10(point.value)) / (high - low)

    draw.text((_LEFT, top + 12), heading, _INK, font)
    for value in _ticks(low, high):
        y = place(Point(0, value))[1]
        draw.line((_LEFT, y, _WIDTH - _RIGHT, y), _GRID)
        draw.text((_LEFT - 8, y), f"{value:.3g}", _INK, font, anchor="rm")
    for fraction in (0, 0.25, 0.5, 0.75, 1):
        x = place(Point(fraction * last, values[0]))[0]
        draw.text((x, top + _HEIGHT - 22), f"{fraction * last:.3g}", _INK, font, anchor="mm")
    path = [place(point) for point in points]
    if len(path) > 1:
        draw.line(path, _LINE, width=2, joint="curve")
    x, y = path[-1]
    draw.ellipse((x - 3, y - 3, x + 3, y + 3), _LINE)


def _ticks(low: float, high: float) -> list[float]:
    """Round values between two powers of ten, or the ends where none lies between."""
    candidates = [
        step * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for step in (1, 2, 5)
    ]
    inside = [value for value in candidates if low <= math.log10(value) <= high]
    return inside if len(inside) > 1 else [10**low, 10**high]
