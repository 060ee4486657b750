"""What all drawings share: colours, Pillow's own font, images enlarged by whole pixels."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor, ImageFont

from model.preprocess import WHITE, Floats

PAPER, INK, FAINT, ACCENT = "#ffffff", "#1b1f24", "#d0d7de", "#bc4c00"
MARGIN = 10
"""Pixels around a drawing."""

_GREYS = 30
"""Of a small PNG, from black to white."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def font(size: int) -> Font:
    """Pillow's own font, `size` pixels high."""
    return ImageFont.load_default(size)


def enlarge(image: Floats, scale: int) -> Image.Image:
    """An image (C, H, W) in [0, 1], C 1 or 3; each pixel becomes `scale` x `scale` pixels."""
    pixels = (image.clip(0, 1) * WHITE + 0.5).astype(np.uint8)
    last = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return Image.fromarray(last.repeat(scale, 0).repeat(scale, 1))


def png(picture: Image.Image) -> bytes:
    """A drawing as a PNG file."""
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def save_small(picture: Image.Image, target: Path) -> None:
    """Write a drawing as a PNG of some greys, INK and ACCENT: a smaller file than that of `png`."""
    greys = [(level, level, level) for level in np.linspace(0, WHITE, _GREYS).round().astype(int)]
    colours = [*greys, *(ImageColor.getrgb(colour) for colour in (INK, ACCENT))]
    palette = Image.new("P", (1, 1))
    palette.putpalette([int(channel) for colour in colours for channel in colour[:3]])
    small = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    small.save(target, "PNG", optimize=True)


def signed(value: float) -> str:
    """A number with its sign, but for zero."""
    return f"{value:+.3g}" if value else "0"
