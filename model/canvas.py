"""Drawing with Pillow: colours, fonts, and images enlarged by whole pixels."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from model.preprocess import WHITE, Floats

PAPER, INK, ACCENT = "#ffffff", "#1b1f24", "#bc4c00"
MARGIN = 10
"""The pixels around a drawing."""
_QUALITY = 50
"""Of a WebP file, from 0 to 100."""
MAX_PX = 13_000_000
"""The most pixels of the images in a drawing, unless they have more on a scale of 1."""
_QUICK_PX = 40_000
"""PNG files of more pixels are compressed in a quarter of the time: photographs and figures get
about a tenth larger by that."""

_FONT_PX, _LINE_PX, _LETTER_PX = 12, 17, 6.5
"""The size of a note's letters under a drawing, the pitch of its lines, and a letter's width."""

_shown: ContextVar[tuple[int, ...]] = ContextVar("shown", default=())

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def font(size: int) -> Font:
    """Return Pillow's own font, `size` pixels high."""
    return ImageFont.load_default(size)


def enlarge(image: Floats, scale: int) -> Image.Image:
    """Enlarge an image (C, H, W) in [0, 1]: pixels become `scale` x `scale` ones."""
    pixels = (shown_channels(image).clip(0, 1) * WHITE + 0.5).astype(np.uint8)
    last = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return Image.fromarray(last.repeat(scale, 0).repeat(scale, 1))


def fit_scale(scale: int, shape: Sequence[int], *, max_px: int = MAX_PX) -> int:
    """The largest scale, up to the wanted one, on which a drawing of images is not too large.

    Args:
        scale: the wanted one.
        shape: of the images (..., C, H, W).
        max_px: the most pixels of all images together.
    """
    *others, _, height, width = shape
    pixels = math.prod(others) * height * width
    return max(1, min(scale, math.isqrt(max_px // pixels)))


def shown_channels(images: NDArray[Any]) -> NDArray[Any]:
    """The channels (..., 1 or 3, H, W) that figures show of images (..., C, H, W).

    Of other numbers of channels, those that `showing` names are shown as red, green and blue. By
    default these are the last, the middle and the first one: channels are in the order of their
    wavelengths, as sensors list them.
    """
    channels = images.shape[-3]
    if channels in (1, 3):
        return images
    chosen = _shown.get() or (channels - 1, channels // 2, 0)
    return images[..., list(chosen), :, :]


@contextmanager
def showing(channels: Sequence[int]) -> Iterator[None]:
    """Show these three channels of images with other numbers of them; none for the default."""
    before = _shown.set(tuple(channels))
    try:
        yield
    finally:
        _shown.reset(before)


def draw_sheet(images: NDArray[np.uint8]) -> bytes:
    """Tile images (N, C, H, W), as figures show them, side by side, row by row, in a WebP file."""
    images = shown_channels(images)
    count, channels, height, width = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    tiles = np.zeros((rows * columns, channels, height, width), np.uint8)
    tiles[:count] = images
    lines = tiles.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    pixels = lines.reshape(rows * height, columns * width, channels)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(
        file, "WEBP", quality=_QUALITY, method=6
    )
    return file.getvalue()


def png(image: Image.Image) -> bytes:
    """A drawing as a PNG file."""
    file = io.BytesIO()
    quick = image.width * image.height > _QUICK_PX
    image.save(file, "PNG", **({"compress_level": 1} if quick else {}))
    return file.getvalue()


def draw_image(image: Floats, scale: int) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG file, on this scale unless it is too large."""
    return png(enlarge(image, fit_scale(scale, image.shape)))


def write_below(drawing: bytes, notes: Sequence[str]) -> bytes:
    """Add the notes below a drawing, a PNG file."""
    if not notes:
        return drawing
    with Image.open(io.BytesIO(drawing)) as drawn:
        columns = max(20, int((drawn.width - 2 * MARGIN) / _LETTER_PX))
        lines = [line for note in notes for line in textwrap.wrap(note, columns)]
        size = (drawn.width, drawn.height + _LINE_PX * len(lines) + MARGIN)
        noted = Image.new("RGB", size, PAPER)
        noted.paste(drawn)
        draw = ImageDraw.Draw(noted)
        for row, line in enumerate(lines):
            draw.text((MARGIN, drawn.height + _LINE_PX * row), line, INK, font(_FONT_PX))
    return png(noted)
