"""The paper's figure 4, drawn: one row for each dimension, one column for each delta."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from model.runtime import Floats
from service.inside.canvas import ACCENT, INK, MARGIN, PAPER, enlarge, font, png, signed

_GAP = 2
"""Pixels between two pictures."""
_FONT = 12


def draw_sweep(
    images: Floats, *, rows: Sequence[str], deltas: Sequence[float], title: str, scale: int
) -> bytes:
    """A labelled grid as a PNG.

    Args:
        images: (len(rows), len(deltas), H, W) in [0, 1].
        rows: a label for each row.
        deltas: at the head of the columns; the column of zero is framed.
        title: above the grid.
        scale: each pixel becomes scale x scale.
    """
    pitch = images.shape[-1] * scale + _GAP
    left = MARGIN + math.ceil(max(font(_FONT).getlength(row) for row in rows)) + 8
    top = MARGIN + 44
    width = max(left + pitch * len(deltas), MARGIN + math.ceil(font(15).getlength(title)))
    picture = Image.new("RGB", (width + MARGIN, top + pitch * len(rows) + MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, INK, font(15))
    _label_columns(draw, deltas, left=left, bottom=top - 5, pitch=pitch)
    for row, label in enumerate(rows):
        y = top + row * pitch
        draw.text((left - 8, y + pitch // 2), label, INK, font(_FONT), anchor="rm")
        for column, image in enumerate(images[row]):
            picture.paste(enlarge(image, scale), (left + column * pitch, y))
    if 0 in deltas:
        x = left + list(deltas).index(0) * pitch
        frame = (x - _GAP, top - _GAP, x + pitch - 1, top + len(rows) * pitch - 1)
        draw.rectangle(frame, outline=ACCENT, width=_GAP)
    return png(picture)


def _label_columns(
    draw: ImageDraw.ImageDraw, deltas: Sequence[float], *, left: int, bottom: int, pitch: int
) -> None:
    """Write as many deltas as have room, counted from the column of zero where there is one."""
    labels = [signed(delta) for delta in deltas]
    widest = max(font(_FONT).getlength(label) for label in labels) + 6
    every = math.ceil(widest / pitch)
    origin = list(deltas).index(0) if 0 in deltas else 0
    for column, label in enumerate(labels):
        if (column - origin) % every == 0:
            middle = left + column * pitch + pitch // 2
            draw.text((middle, bottom), label, INK, font(_FONT), anchor="ms")
