"""Draw a sweep as the paper's figure 4: a row for each dimension, a column for each delta."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from model.bundle import Manifest
from model.canvas import ACCENT, INK, MARGIN, PAPER, enlarge, font, signed
from model.interpret.sweep import Sweep
from model.preprocess import Floats

_GAP = 2
"""The pixels between two images."""
_FONT = 12


def draw_sweep(
    images: Floats, sweep: Sweep, *, manifest: Manifest, label: int, scale: int
) -> Image.Image:
    """A grid whose rows are named by what their dimensions were found to do.

    Args:
        images: (len(sweep.dims), len(sweep.deltas), C, H, W) in [0, 1].
        sweep: its deltas stand at the head of the columns; the column of zero is framed.
        manifest: of the network that drew the images.
        label: the class whose pose was moved.
        scale: each pixel becomes scale x scale.
    """
    rows = [_name_row(manifest, label, dim) for dim in sweep.dims]
    title = f"{manifest.class_names[label]}: pose dimensions, moved"
    deltas = sweep.deltas
    height, width_px = images.shape[-2:]
    pitch, down = width_px * scale + _GAP, height * scale + _GAP
    left = MARGIN + math.ceil(max(font(_FONT).getlength(row) for row in rows)) + 8
    top = MARGIN + 44
    width = max(left + pitch * len(deltas), MARGIN + math.ceil(font(15).getlength(title)))
    picture = Image.new("RGB", (width + MARGIN, top + down * len(rows) + MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, INK, font(15))
    _label_columns(draw, deltas, left=left, bottom=top - 5, pitch=pitch)
    for row, name in enumerate(rows):
        y = top + row * down
        draw.text((left - 8, y + down // 2), name, INK, font(_FONT), anchor="rm")
        for column, image in enumerate(images[row]):
            picture.paste(enlarge(image, scale), (left + column * pitch, y))
    if 0 in deltas:
        x = left + deltas.index(0) * pitch
        frame = (x - _GAP, top - _GAP, x + pitch - 1, top + len(rows) * down - 1)
        draw.rectangle(frame, outline=ACCENT, width=_GAP)
    return picture


def _name_row(manifest: Manifest, label: int, dim: int) -> str:
    """The dimension's number, and what it was found to do."""
    meaning = manifest.meaning(label, dim)
    return f"{dim} \N{MIDDLE DOT} {meaning.effect}" if meaning and meaning.effect else str(dim)


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
