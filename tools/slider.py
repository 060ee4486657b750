"""The animated picture of sliders that move, and of what the service decodes meanwhile."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from model.canvas import ACCENT, INK, MARGIN, PAPER, font, signed

ROUTE = "/sweep?model=mnist&by=direction"
_ROWS = 3
"""The directions that are shown: thickness, slant and width."""
"""What is asked about the picture."""
_SIDE, _TRACK, _TOP = 196, 170, 30
"""Pixels of a picture's side, of a slider, and above the pictures."""
_GREY = "#afb8c1"
_FRAME_MS = 60


def save_slider(answer: dict[str, Any], picture: bytes, path: Path) -> None:
    """Animate a sweep's answer as a WebP: each slider goes to both ends and back.

    Args:
        answer: of `/sweep`.
        picture: the file that was sent.
    """
    first, *others = _frames(answer, picture)
    first.save(path, save_all=True, append_images=others, duration=_FRAME_MS, loop=0, lossless=True)


def _frames(answer: dict[str, Any], picture: bytes) -> Iterator[Image.Image]:
    middle, last = len(answer["deltas"]) // 2, len(answer["deltas"]) - 1
    there = [*range(middle, last), *range(last, 0, -1), *range(middle)]
    for moved in range(_ROWS):
        for step in there:
            yield _frame(answer, picture, moved, step)


def _frame(answer: dict[str, Any], picture: bytes, moved: int, step: int) -> Image.Image:
    """The picture, a slider for each direction, and what is decoded where one of them is moved."""
    left = MARGIN + _SIDE + 3 * MARGIN
    width = left + _TRACK + 3 * MARGIN + _SIDE + MARGIN
    frame = Image.new("RGB", (width, _TOP + _SIDE + MARGIN), PAPER)
    draw = ImageDraw.Draw(frame)
    drawn = base64.b64decode(answer["images"][moved][step].partition(",")[2])
    for x, title, content in (
        (MARGIN, "image", picture),
        (width - MARGIN - _SIDE, "decoded from the changed pose", drawn),
    ):
        draw.text((x, MARGIN), title, INK, font(13))
        image = Image.open(io.BytesIO(content)).convert("L")
        frame.paste(image.resize((_SIDE, _SIDE), Image.Resampling.NEAREST), (x, _TOP))
    for row, direction in enumerate(answer["directions"][:_ROWS]):
        delta = answer["deltas"][step] if row == moved else 0.0
        y = _TOP + 24 + row * 66
        colour = ACCENT if row == moved else _GREY
        draw.text((left, y), direction["name"], INK, font(14))
        value = f"{signed(round(delta * direction['std'], 1))} {direction['unit']}"
        draw.text((left + _TRACK, y), value, INK, font(14), anchor="ra")
        draw.line((left, y + 28, left + _TRACK, y + 28), _GREY, 3)
        knob = left + _TRACK * (0.5 + delta / 4)
        draw.ellipse((knob - 7, y + 21, knob + 7, y + 35), colour)
    return frame
