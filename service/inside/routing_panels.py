"""Routing, drawn: where a class's support comes from in each iteration, and its votes."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from model.bundle import Manifest
from model.canvas import ACCENT, FAINT, INK, MARGIN, PAPER, enlarge, font, png
from model.runtime import Floats
from service.inside import agreement
from service.inside.agreement import Projection
from service.inside.views import RoutingView

_SUPPORTING, _OPPOSING = np.array([214, 84, 0]), np.array([9, 105, 218])
_STROKE = 0.45
"""How dark the picture's strokes are, under the heat."""
_HEADING, _FOOTING = 40, 24
"""Pixels above and below the panels."""


def draw_routing(view: RoutingView, manifest: Manifest, *, scale: int) -> bytes:
    """One panel for each iteration and one for the votes, as a PNG.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see: orange where they support the class, blue where they oppose it, all panels on one
    scale. In the last, each dot is a vote, larger and darker the stronger its coupling.
    """
    maps = agreement.on_grid(view.support[:, view.label], manifest.primary_grid)
    image = view.prepared.image[0]
    side = image.shape[0] * scale
    strongest = np.abs(maps).max() or 1.0
    panels = [_overlay(image, heat / strongest, manifest, scale) for heat in maps]
    panels.append(_scatter(view.projection, view.routing.couplings[-1, view.label], side))
    headings = [
        (f"iteration {step + 1}", f"agreement {agreed:.2f}, length {length:.2f}")
        for step, (agreed, length) in enumerate(
            zip(view.agreement[:, view.label], view.lengths[:, view.label], strict=True)
        )
    ]
    spread = 100 * float(view.projection.explained.sum())
    name = manifest.class_names[view.label]
    headings.append((f"votes for {name}", f"{spread:.0f} % of their variance"))
    pitch, bottom = side + MARGIN, MARGIN + _HEADING + side
    size = (MARGIN + pitch * len(panels), bottom + _FOOTING + MARGIN)
    picture = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(picture)
    for place, (panel, (heading, figures)) in enumerate(zip(panels, headings, strict=True)):
        x = MARGIN + place * pitch
        draw.text((x, MARGIN), heading, INK, font(15))
        draw.text((x, MARGIN + 20), figures, INK, font(12))
        picture.paste(panel, (x, MARGIN + _HEADING))
    caption = f"Orange cells support {name}, blue ones oppose it. Dots are votes around their mean."
    draw.text((MARGIN, bottom + 8), caption, INK, font(12))
    return png(picture)


def _overlay(image: Floats, heat: Floats, manifest: Manifest, scale: int) -> Image.Image:
    """An image (H, W) in grey, the square of each cell tinted by heat (G, G) in [-1, 1]."""
    stride, field = manifest.primary_stride_px * scale, manifest.primary_field_px * scale
    first = (field - stride) // 2
    last = first + stride * len(heat)
    tint = np.zeros((image.shape[0] * scale, image.shape[1] * scale, 1))
    tint[first:last, first:last, 0] = heat.repeat(stride, 0).repeat(stride, 1)
    ground = enlarge(1 - _STROKE * image, scale).convert("RGB")
    colour = np.where(tint > 0, _SUPPORTING, _OPPOSING)
    opacity = 0.9 * np.abs(tint)
    pixels = np.asarray(ground) * (1 - opacity) + colour * opacity
    panel = Image.fromarray((pixels + 0.5).astype(np.uint8))
    draw = ImageDraw.Draw(panel)
    draw.rectangle((0, 0, panel.width - 1, panel.height - 1), outline=FAINT)
    draw.rectangle((first - 1, first - 1, last, last), outline=FAINT)
    return panel


def _scatter(projection: Projection, couplings: Floats, side: int) -> Image.Image:
    """Votes (I, 2) as dots around their weighted mean."""
    large = 2 * side  # drawn twice as large and scaled down: Pillow's dots have rough edges
    picture = Image.new("RGB", (large, large), PAPER)
    draw = ImageDraw.Draw(picture, "RGBA")
    draw.rectangle((0, 0, large - 1, large - 1), outline=FAINT, width=2)
    reach = float(np.abs(projection.points).max()) * 1.08 or 1.0
    strength = couplings / couplings.max()
    for (x, y), share in zip(projection.points / reach, strength, strict=True):
        centre = (large * (1 + x) / 2, large * (1 - y) / 2)
        radius = large * (0.003 + 0.007 * share)
        draw.circle(centre, radius, (27, 31, 36, int(20 + 110 * share)))
    arm = large * 0.02
    middle = large / 2
    draw.line((middle - arm, middle, middle + arm, middle), ACCENT, width=4)
    draw.line((middle, middle - arm, middle, middle + arm), ACCENT, width=4)
    return picture.resize((side, side), Image.Resampling.LANCZOS)
