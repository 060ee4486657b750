"""The diagram of two parts that vote for a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from model.canvas import ACCENT, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOF, _WALL = ACCENT, "#0969da"
HOUSE = (((-6, 1), (0, 7), (6, 1)), ((-5, 1), (-5, -6), (5, -6), (5, 1), (-5, 1)))
"""A roof and a wall."""
BOAT = (((-4, -1), (0, 4), (0, -1)), ((-6, -1), (6, -1), (4, -5), (-4, -5), (-6, -1)))
"""A sail, which could be a roof, and a hull, which could be a wall."""
_NAMES = {"roof": (2, 20), "wall": (18, 5)}
"""Where the parts' names stand."""


def draw_votes() -> Figure:
    """Two parts, and what each votes for: the votes for a house agree, those for a boat do not."""
    figure = Figure(figsize=(7.2, 2.9), facecolor=PAPER)
    axes: Axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 72), ylim=(0, 29))
    axes.axis("off")
    for middle, title in ((10, "image"), (34, "votes for a house"), (58, "votes for a boat")):
        axes.text(middle, 26.5, title, ha="center", size=9, weight="bold", color=INK)
    for x, y, tilt_deg, shape, colour in (
        (33.6, 13.2, 20, HOUSE, _ROOF),
        (34.4, 12.8, 21, HOUSE, _WALL),
        (54, 17, 20, BOAT, _ROOF),
        (62, 9, -70, BOAT, _WALL),
    ):
        _draw_outline(axes, shape, (x, y), tilt_deg=tilt_deg, colour=colour)
    for part, name, colour in ((HOUSE[:1], "roof", _ROOF), (HOUSE[1:], "wall", _WALL)):
        _draw_outline(axes, part, (10, 13), tilt_deg=20, colour=colour)
        axes.text(*_NAMES[name], name, ha="center", size=8, color=colour)
    for middle, verdict in ((34, "agree: couplings grow"), (58, "differ: couplings shrink")):
        axes.text(middle, 2, verdict, ha="center", size=8, color=INK)
    return figure


def _draw_outline(
    axes: Axes,
    outline: Sequence[Sequence[tuple[float, float]]],
    middle: tuple[float, float],
    *,
    tilt_deg: float,
    colour: str,
) -> None:
    """Lines of an object, rotated counter-clockwise about its middle."""
    cosine, sine = np.cos(np.radians(tilt_deg)), np.sin(np.radians(tilt_deg))
    for line in outline:
        x, y = np.array(line, float).T
        shown = (middle[0] + cosine * x - sine * y, middle[1] + sine * x + cosine * y)
        axes.plot(*shown, color=colour, linewidth=1.6, solid_joinstyle="round")
