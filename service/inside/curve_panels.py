"""Equivariance, drawn: the moved pictures, and how length and pose follow them."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from model.bundle import Manifest
from model.canvas import INK, MARGIN, enlarge, font, png
from model.plot import Chart, Line, Point, draw_charts
from model.runtime import Floats
from service.inside.affine import Transform
from service.inside.equivariance import EquivarianceView

_WIDTH = 900
_THUMBNAILS = 13
"""At most so many pictures are shown, evenly spaced."""
_UNITS: dict[Transform, str] = {
    "shift-x": "pixels to the right",
    "shift-y": "pixels down",
    "turn": "degrees counter-clockwise",
    "scale": "times the size",
}


def draw_equivariance(view: EquivarianceView, manifest: Manifest) -> bytes:
    """Pictures on top, then length, angle and the pose's components over the walk, as a PNG."""
    label = view.sight.label
    name, unit = manifest.class_names[label], _UNITS[view.walk.transform]
    others = np.delete(view.lengths, label, axis=1).max(axis=1)
    charts = [
        Chart(
            "length",
            [
                _line(view, view.lengths[:, label], name),
                _line(view, others, "longest other"),
            ],
            x_title=unit,
            y_range=(0, 1),
        ),
        Chart(
            f"angle between the pose of {name} and the one of the unmoved picture, degrees",
            [_line(view, view.angles_deg)],
            x_title=unit,
        ),
        Chart(
            f"the {view.poses.shape[1]} numbers of the pose",
            [_line(view, component) for component in view.poses.T],
            x_title=unit,
        ),
    ]
    curves = draw_charts(charts, width=_WIDTH)
    strip = _strip(view)
    picture = Image.new("RGB", (_WIDTH, strip.height + curves.height), "white")
    picture.paste(strip, (0, 0))
    picture.paste(curves, (0, strip.height))
    return png(picture)


def _line(view: EquivarianceView, values: Floats, name: str = "") -> Line:
    pairs = zip(view.walk.values, values, strict=True)
    return Line([Point(x, float(y)) for x, y in pairs], name)


def _strip(view: EquivarianceView) -> Image.Image:
    """Some of the moved pictures side by side, each over its value."""
    steps = len(view.images)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))
    pitch = (_WIDTH - 2 * MARGIN) // len(shown)
    side = view.images[0].shape[-1]
    scale = max(1, min(2, (pitch - 4) // side))
    strip = Image.new("RGB", (_WIDTH, side * scale + 34), "white")
    draw = ImageDraw.Draw(strip)
    for place, step in enumerate(shown):
        middle = MARGIN + place * pitch + pitch // 2
        strip.paste(enlarge(view.images[step][0], scale), (middle - side * scale // 2, MARGIN))
        label = f"{view.walk.values[step]:.3g}"
        draw.text((middle, strip.height - 4), label, INK, font(12), anchor="ms")
    return strip
