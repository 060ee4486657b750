"""Bytes to pictures and pictures to bytes. Pictures are fully decoded here and nowhere later."""

from __future__ import annotations

import io
import re
import struct
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from model.canvas import enlarge, png
from model.preprocess import Floats
from service.errors import TooLarge, UnreadablePicture, UnsupportedFormat

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_SIGNATURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP|BM|GIF8[79]a", re.DOTALL)
"""How a file in one of FORMATS begins."""
_PLAIN_PNG = re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR(.{4})(.{4})", re.DOTALL)
_FEW_BYTES = 4096
_AMPLE_PIXELS = 640
"""Images that are decoded smaller than they are keep at least this, along their longer side."""
_LARGE = 4_000_000
"""Images with more pixels than this are made smaller, whatever their format."""
_STRIP = 1_000_000
"""Pixels that are made smaller at once."""
_BROKEN = (OSError, ValueError, SyntaxError, IndexError, EOFError, struct.error)
"""What Pillow raises of truncated and corrupt files."""


class Decoded(NamedTuple):
    """An image, and how much smaller it was made."""

    picture: Image.Image
    shrink: float
    """Pixels of the file, along a side, that one of the image stands for."""


def plain_png_size(content: bytes) -> tuple[int, int] | None:
    """Width and height of a small file that is a PNG of pixels and nothing else; else None.

    What else a PNG may hold, such as compressed texts, can take long to read.
    """
    head = _PLAIN_PNG.match(content)
    if head is None or len(content) > _FEW_BYTES:
        return None
    position = 33  # after the signature and the first chunk
    while position < len(content):
        if content[position + 4 : position + 8] not in (b"IDAT", b"IEND"):
            return None
        position += 12 + int.from_bytes(content[position : position + 4], "big")
    return int.from_bytes(head[1], "big"), int.from_bytes(head[2], "big")


def decode(content: bytes, *, max_pixels: int) -> Decoded:
    """Decode the first frame of a picture.

    Large ones come smaller than they are, which is more than enough for a network and saves time
    (JPEGs, while they are decoded) and memory (all others, before they are made grey).

    Args:
        content: a whole file in one of FORMATS.
        max_pixels: largest width x height, checked before anything is decoded.

    Raises:
        UnsupportedFormat: not one of FORMATS.
        TooLarge: more pixels than allowed.
        UnreadablePicture: truncated or corrupt.
    """
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit; that of the settings is checked below
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError as error:
        if _SIGNATURE.match(content):
            raise UnreadablePicture("the picture's header is truncated or corrupt") from error
        known = ", ".join(FORMATS)
        raise UnsupportedFormat(f"the picture is none of {known}") from error
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture's header cannot be read: {error}") from error
    if picture.width * picture.height > max_pixels:
        raise TooLarge(
            f"a picture may have {max_pixels:,} pixels, this one has "
            f"{picture.width} x {picture.height}"
        )
    longest = max(picture.size)
    factor = max(1, longest // _AMPLE_PIXELS)
    try:
        picture.draft(None, (max(1, picture.width // factor), max(1, picture.height // factor)))
        picture.load()
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture is truncated or corrupt: {error}") from error
    smaller = _reduce(picture)
    return Decoded(smaller, longest / max(smaller.size))


def _reduce(picture: Image.Image) -> Image.Image:
    """A large picture smaller by a whole factor, made strip by strip to need little memory."""
    width, height = picture.size
    factor = max(width, height) // _AMPLE_PIXELS
    if width * height <= _LARGE or factor < 2:
        return picture
    rows = factor * max(1, _STRIP // (width * factor))
    strips = [
        _averageable(picture.crop((0, top, width, min(top + rows, height)))).reduce(factor)
        for top in range(0, height, rows)
    ]
    smaller = Image.new(strips[0].mode, (strips[0].width, sum(strip.height for strip in strips)))
    smaller.info = {key: value for key, value in picture.info.items() if key != "transparency"}
    top = 0
    for strip in strips:
        smaller.paste(strip, (0, top))
        top += strip.height
    return smaller


def _averageable(picture: Image.Image) -> Image.Image:
    """In a mode whose pixels can be averaged: no palette, no colour that means transparent."""
    if picture.mode.startswith("I"):
        return picture.convert("I")
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture.convert({"1": "L", "P": "RGB"}.get(picture.mode, picture.mode))


def encode_png(image: Floats, *, scale: int = 1) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG, each pixel enlarged to `scale` squared."""
    return png(enlarge(image, scale))
