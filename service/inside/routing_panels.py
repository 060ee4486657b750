"""Routing, drawn: where a class's support comes from, its votes, and the layers before."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from model.bundle import Layer, Manifest
from model.canvas import ACCENT, FAINT, INK, MARGIN, PAPER, enlarge, font, png
from model.preprocess import Floats, Prepared
from model.runtime import LayerTrace
from service.inside import agreement
from service.inside.agreement import Projection
from service.inside.views import RoutingView

_SUPPORTING, _OPPOSING = np.array([214, 84, 0]), np.array([9, 105, 218])
_STROKE = 0.45
"""How dark the picture is, under the heat."""
_HEADING, _FOOTING = 40, 24
"""Pixels above and below the panels."""
_TITLE, _FIGURES = 15, 12
"""Sizes of the fonts."""


class _Panel(NamedTuple):
    picture: Image.Image
    title: str
    figures: str

    @property
    def width(self) -> int:
        """Pixels, for the picture and for what is written above it."""
        words = font(_TITLE).getlength(self.title), font(_FIGURES).getlength(self.figures)
        return max(self.picture.width, math.ceil(max(words)))


def draw_routing(view: RoutingView, manifest: Manifest, *, scale: int) -> bytes:
    """One panel for each iteration and one for the votes, then a row for each layer before.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see: orange where they support the class, blue where they oppose it, all panels on one
    scale. In that of the votes, each dot is a vote, larger and darker the more it weighs. The rows
    of hidden layers have a map of each capsule type for each iteration, darker the more active.
    """
    name = manifest.class_names[view.capsule.label]
    captions = [f"Orange cells support {name}, blue ones oppose it.", "Dots are votes."]
    rows = [_class_panels(view, manifest, scale)]
    side = rows[0][0].picture.width
    for layer, trace in view.trace.hidden.items():
        rows.append(_hidden_panels(layer, trace, side))
    if len(rows) > 1:
        captions.append("Below, the activation of each capsule type: the darker, the more.")
    return png(_lay_out(rows, " ".join(captions)))


def _lay_out(rows: list[list[_Panel]], caption: str) -> Image.Image:
    """Rows of panels under their titles, and a caption."""
    columns = [max(one.width for one in column if one) for column in zip_longest(*rows)]
    heights = [_HEADING + max(panel.picture.height for panel in row) + MARGIN for row in rows]
    wide = sum(columns) + MARGIN * len(columns)
    width = max(wide, math.ceil(font(_FIGURES).getlength(caption)) + MARGIN)
    page = Image.new("RGB", (MARGIN + width, MARGIN + sum(heights) + _FOOTING), PAPER)
    draw = ImageDraw.Draw(page)
    top = MARGIN
    for row, height in zip(rows, heights, strict=True):
        left = MARGIN
        for (picture, title, figures), column in zip(row, columns, strict=False):
            draw.text((left, top), title, INK, font(_TITLE))
            draw.text((left, top + 20), figures, INK, font(_FIGURES))
            page.paste(picture, (left, top + _HEADING))
            left += column + MARGIN
        top += height
    draw.text((MARGIN, top), caption, INK, font(_FIGURES))
    return page


def _class_panels(view: RoutingView, manifest: Manifest, scale: int) -> list[_Panel]:
    """Support for the class by iteration, and the votes for it."""
    layer, label = manifest.layers[-1], view.capsule.label
    maps = agreement.on_grid(view.support[:, label], layer)
    strongest = np.abs(maps).max() or 1.0
    panels = [
        _Panel(
            _overlay(view.capsule.encoded.prepared, heat / strongest, layer, scale),
            f"iteration {step + 1}",
            f"agreement {agreed:.2f}, {manifest.presence} {presence:.2f}",
        )
        for step, (heat, agreed, presence) in enumerate(
            zip(maps, view.agreement[:, label], view.trace.classes.presence[:, label], strict=True)
        )
    ]
    votes = _scatter(view.projection, view.weights[label], panels[0].picture.size)
    spread = 100 * float(view.projection.explained.sum())
    title = f"votes for {manifest.class_names[label]}"
    return [*panels, _Panel(votes, title, f"{spread:.0f} % of their variance")]


def _overlay(prepared: Prepared, heat: Floats, layer: Layer, scale: int) -> Image.Image:
    """A picture, paled, and the square of each cell tinted by heat (rows, columns) in [-1, 1]."""
    # Photographs, which have no polarity, stay as they are.
    dark = prepared.image if prepared.polarity else 1 - prepared.image
    ground = enlarge(1 - _STROKE * dark, scale).convert("RGB")
    (rows, in_rows), (columns, in_columns) = (
        _cells(pixels, count, layer, scale)
        for pixels, count in ((ground.height, layer.rows), (ground.width, layer.columns))
    )
    tint = (heat[np.ix_(rows, columns)] * np.outer(in_rows, in_columns))[..., None]
    colour = np.where(tint > 0, _SUPPORTING, _OPPOSING)
    # A single cell covers the whole picture, which is to be seen all the same.
    opacity = (0.9 if heat.size > 1 else 0.4) * np.abs(tint)
    pixels = np.asarray(ground) * (1 - opacity) + colour * opacity
    panel = Image.fromarray((pixels + 0.5).astype(np.uint8))
    draw = ImageDraw.Draw(panel)
    draw.rectangle((0, 0, panel.width - 1, panel.height - 1), outline=FAINT)
    left, right = np.flatnonzero(in_columns)[[0, -1]]
    top, bottom = np.flatnonzero(in_rows)[[0, -1]]
    draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=FAINT)
    return panel


def _cells(
    pixels: int, count: int, layer: Layer, scale: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The cell around each of some enlarged pixels along one side, and whether there is one."""
    first = (layer.field_px - layer.stride_px) / 2
    cells = ((np.arange(pixels) / scale - first) // layer.stride_px).astype(np.int64)
    return cells.clip(0, count - 1), (cells >= 0) & (cells < count)


def _scatter(projection: Projection, weights: Floats, size: tuple[int, int]) -> Image.Image:
    """Votes (I, 2) as dots around their weighted mean."""
    width, height = (2 * side for side in size)  # drawn large: Pillow's dots have rough edges
    picture = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(picture, "RGBA")
    draw.rectangle((0, 0, width - 1, height - 1), outline=FAINT, width=2)
    reach = float(np.abs(projection.points).max()) * 1.08 or 1.0
    strength = weights / (weights.max() or 1.0)
    short = min(width, height)
    for (x, y), share in zip(projection.points / reach, strength, strict=True):
        centre = (width / 2 + short * x / 2, height / 2 - short * y / 2)
        radius = short * (0.003 + 0.007 * share)
        draw.circle(centre, radius, (27, 31, 36, int(20 + 110 * share)))
    arm = short * 0.02
    across, down = width / 2, height / 2
    draw.line((across - arm, down, across + arm, down), ACCENT, width=4)
    draw.line((across, down - arm, across, down + arm), ACCENT, width=4)
    return picture.resize(size, Image.Resampling.LANCZOS)


def _hidden_panels(name: str, trace: LayerTrace, side: int) -> list[_Panel]:
    """The activation maps of a layer, by iteration, all on one scale."""
    low, high = float(trace.presence.min()), float(trace.presence.max())
    shades = (trace.presence - low) / (high - low or 1.0)
    return [
        _Panel(
            _mosaic(maps, side),
            f"{name}, iteration {step + 1}" if step == 0 else f"iteration {step + 1}",
            f"activations from {before.min():.2f} to {before.max():.2f}",
        )
        for step, (maps, before) in enumerate(zip(shades, trace.presence, strict=True))
    ]


def _mosaic(maps: Floats, side: int) -> Image.Image:
    """Maps (T, rows, columns) in [0, 1] as squares of a square, dark where they are one."""
    count = math.ceil(math.sqrt(len(maps)))
    pitch = side // count
    picture = Image.new("RGB", (side, pitch * math.ceil(len(maps) / count)), PAPER)
    draw = ImageDraw.Draw(picture)
    for place, one in enumerate(maps):
        left, top = place % count * pitch, place // count * pitch
        tile = enlarge(1 - one[None], 1).resize((pitch - 3, pitch - 3), Image.Resampling.NEAREST)
        picture.paste(tile, (left + 1, top + 1))
        draw.rectangle((left, top, left + pitch - 2, top + pitch - 2), outline=FAINT)
    return picture
