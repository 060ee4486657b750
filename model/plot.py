"""Line charts as pictures, drawn with Pillow alone: for model cards and for the service."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw

from model.canvas import FAINT, INK, PAPER, font

COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#57606a")
"""Of the lines, in order; they read on white, and apart for the colour-blind in the first four."""
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 240, 90, 24, 34, 38
_FONT = 13
_FINE = 2
"""Lines are drawn this much larger and scaled down: Pillow's own edges are rough."""


class Point(NamedTuple):
    """One measurement."""

    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """One curve of a chart."""

    points: Sequence[Point]
    name: str = ""
    """In the legend; lines without one share the last line's look and are not listed."""


class Mark(NamedTuple):
    """One measurement with its name beside it."""

    point: Point
    name: str


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    """Over the lines, in ink."""
    x_title: str = ""
    logarithmic: bool = False
    """Whether y is; values must then be above zero."""
    logarithmic_x: bool = False
    """Whether x is, likewise."""
    y_range: tuple[float, float] | None = None
    """By default what the lines need."""


def draw_charts(charts: Sequence[Chart], *, title: str = "", width: int = 900) -> Image.Image:
    """Draw charts one below the other.

    Args:
        charts: any number; each has a line with a point.
        title: above them.
        width: of the picture, in pixels.
    """
    top = 34 if title else 0
    picture = Image.new("RGB", (width, _HEIGHT * max(1, len(charts)) + top), PAPER)
    if title:
        ImageDraw.Draw(picture).text((_LEFT, 8), title, INK, font(18))
    for place, chart in enumerate(charts):
        picture.paste(_draw_chart(chart, width), (0, top + place * _HEIGHT))
    return picture


def save_charts(charts: Sequence[Chart], target: Path, *, title: str = "") -> None:
    """Draw charts into a PNG file."""
    draw_charts(charts, title=title).save(target)


class _Frame(NamedTuple):
    """Where values lie in a panel."""

    width: int
    x: tuple[float, float]
    y: tuple[float, float]
    logarithmic: bool
    logarithmic_x: bool

    def place(self, point: Point) -> tuple[float, float]:
        across = math.log10(point.x) if self.logarithmic_x else point.x
        value = math.log10(point.y) if self.logarithmic else point.y
        right = (across - self.x[0]) / (self.x[1] - self.x[0])
        up = (value - self.y[0]) / (self.y[1] - self.y[0])
        return (
            _LEFT + (self.width - _LEFT - _RIGHT) * right,
            _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * up,
        )


def _draw_chart(chart: Chart, width: int) -> Image.Image:
    frame = _frame(chart, width)
    panel = Image.new("RGB", (width, _HEIGHT), PAPER)
    draw = ImageDraw.Draw(panel)
    x_ticks = _powers(*frame.x) if chart.logarithmic_x else _round_values(*frame.x)
    y_ticks = _powers(*frame.y) if chart.logarithmic else _round_values(*frame.y)
    for value in y_ticks:
        y = frame.place(Point(x_ticks[0], value))[1]
        draw.line((_LEFT, y, width - _RIGHT, y), FAINT)
        draw.text((_LEFT - 8, y), _write(value), INK, font(_FONT), anchor="rm")
    for value in x_ticks:
        x = frame.place(Point(value, y_ticks[0]))[0]
        draw.text((x, _HEIGHT - _BOTTOM + 12), _write(value), INK, font(_FONT), anchor="mm")
    draw.text((width - _RIGHT, _HEIGHT - 8), chart.x_title, INK, font(_FONT), anchor="rs")
    _draw_lines(panel, chart, frame)
    _draw_marks(draw, chart, frame)
    draw.text((_LEFT, 10), chart.title, INK, font(_FONT))
    _draw_legend(draw, chart, width)
    return panel


def _draw_lines(panel: Image.Image, chart: Chart, frame: _Frame) -> None:
    """Draw the lines large, scale them down and lay them over the panel."""
    large = panel.resize((panel.width * _FINE, panel.height * _FINE), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(large)
    for place, line in reversed(list(enumerate(chart.lines))):
        colour = _colour(chart, place)
        path = [(x * _FINE, y * _FINE) for x, y in map(frame.place, line.points)]
        if len(path) > 1:
            draw.line(path, colour, width=2 * _FINE, joint="curve")
        draw.circle(path[-1], 3 * _FINE, colour)
    panel.paste(large.resize(panel.size, Image.Resampling.BOX))


def _draw_marks(draw: ImageDraw.ImageDraw, chart: Chart, frame: _Frame) -> None:
    """Dots, their names towards the middle of the panel and off a line that rises."""
    for point, name in chart.marks:
        x, y = frame.place(point)
        draw.circle((x, y), 3, INK)
        side, anchor = (4, "lt") if x < frame.width / 2 else (-4, "rb")
        draw.text((x + side, y + side), name, INK, font(_FONT), anchor=anchor)


def _draw_legend(draw: ImageDraw.ImageDraw, chart: Chart, width: int) -> None:
    right = float(width - _RIGHT)
    for place in reversed(range(len(chart.lines))):
        name = chart.lines[place].name
        if name:
            draw.text((right, 10), name, _colour(chart, place), font(_FONT), anchor="ra")
            right -= draw.textlength(name, font(_FONT)) + 16


def _colour(chart: Chart, place: int) -> str:
    return COLOURS[min(place, len(COLOURS) - 1)] if chart.lines[place].name else COLOURS[0]


def _frame(chart: Chart, width: int) -> _Frame:
    points = [point for line in chart.lines for point in line.points]
    points += [mark.point for mark in chart.marks]
    xs, ys = [point.x for point in points], [point.y for point in points]
    left, right = min(xs), max(xs)
    low, high = chart.y_range or (min(ys), max(ys))
    if chart.logarithmic_x:
        left, right = math.log10(left), math.log10(right)
    if chart.logarithmic:
        low, high = math.log10(low), math.log10(high)
    return _Frame(
        width,
        _widened(left, right),
        _widened(low, high),
        chart.logarithmic,
        chart.logarithmic_x,
    )


def _write(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that has some extent."""
    room = 0.05 * max(abs(low), abs(high), 1)
    return (low, high) if high - low > room / 10 else (low - room, high + room)


def _round_values(low: float, high: float) -> list[float]:
    """Four to nine round values of a range."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.7)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) + 0.0 for place in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Up to eight round values between two powers of ten, or the ends where none lies between."""
    for steps, every in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 5)):
        inside = [
            step * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for step in steps
            if power % every == 0 and low <= math.log10(step * 10.0**power) <= high
        ]
        if len(inside) <= 8:
            break
    return inside if len(inside) > 1 else [10**low, 10**high]
