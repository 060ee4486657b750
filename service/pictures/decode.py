"""Decode image files with Pillow."""

from __future__ import annotations

import io
import math
import struct
from typing import NamedTuple

from PIL import Image, PngImagePlugin, UnidentifiedImageError

from model.preprocess import Floats, read_array
from model.preprocess.header import ARRAY, Header, check_parts, read_header
from service.errors import TooLarge, UnreadablePicture

MAX_SIDE = 16_384
"""A side may have this many pixels, because the memory of one row grows with it."""
_AMPLE_PIXELS = 640
"""A reduced image keeps at least this many pixels along its longer side."""
_MAX_WHOLE_PIXELS = 4_000_000
"""An image with more pixels is reduced, whatever its format."""
_STRIP = 1_000_000
"""This many pixels are reduced at once."""
_FLOATS = "F"
"""The mode of a TIFF of floats."""
_MAX_TEXT_BYTES = 8_000_000
"""All texts of a PNG may have this many bytes together, decompressed."""
_BROKEN = (OSError, ValueError, SyntaxError, IndexError, EOFError, struct.error)
"""The exceptions that Pillow raises for truncated and corrupt files."""


class Decoded(NamedTuple):
    """An image, and how much smaller it was made."""

    picture: Image.Image | Floats
    """The image; an array (H, W, C) in [0, 1] of a `.npy` file."""
    shrink: float
    """The number of the file's pixels along a side for one pixel of the image."""


def decode(content: bytes, header: Header | None = None, *, max_pixels: int) -> Decoded:
    """Decode the first frame of a picture, whose header may have been read already.

    Large ones come smaller than they are, which is more than enough for a network and saves time
    (JPEGs, while they are decoded) and memory (all others, before they are made grey).

    Raises:
        UnsupportedFormat: not one of FORMATS.
        TooLarge: more pixels than allowed.
        UnreadablePicture: truncated or corrupt.
    """
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit; that of the settings is checked below
    PngImagePlugin.MAX_TEXT_MEMORY = _MAX_TEXT_BYTES
    header = header or read_header(content)
    check_size(header.width, header.height, max_pixels=max_pixels)
    if header.format == ARRAY:
        return Decoded(_read_array(content), 1.0)
    check_parts(content, header)
    try:
        picture = Image.open(io.BytesIO(content), formats=[header.format])
    except (UnidentifiedImageError, *_BROKEN) as error:
        raise UnreadablePicture(f"the picture's header cannot be read: {error}") from error
    check_size(*picture.size, max_pixels=max_pixels)  # a GIF's first frame may exceed its header
    longest = max(picture.size)
    factor = max(1, longest // _AMPLE_PIXELS)
    try:
        picture.draft(None, (max(1, picture.width // factor), max(1, picture.height // factor)))
        picture.load()
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture is truncated or corrupt: {error}") from error
    if picture.mode == "P" and picture.palette is None:
        raise UnreadablePicture("the picture's palette is missing")
    if picture.mode == _FLOATS:
        raise UnreadablePicture("a TIFF of floats has no white: send it as 16 bits, or as an array")
    smaller = _reduce(picture)
    return Decoded(smaller, longest / max(smaller.size))


def check_size(width: int, height: int, *, max_pixels: int) -> None:
    """Refuse a picture that is too large.

    Raises:
        TooLarge: more pixels, or a longer side, than allowed.
    """
    if width * height > max_pixels:
        raise TooLarge(f"a picture may have {max_pixels:,} pixels, this one has {width} x {height}")
    if max(width, height) > MAX_SIDE:
        raise TooLarge(
            f"a picture's side may have {MAX_SIDE:,} pixels, this one has {width} x {height}"
        )


def _read_array(content: bytes) -> Floats:
    try:
        return read_array(content)
    except ValueError as error:
        raise UnreadablePicture(str(error)) from error


def _reduce(picture: Image.Image) -> Image.Image:
    """A large picture smaller by a whole factor, made strip by strip to need little memory."""
    width, height = picture.size
    factor = max(width, height) // _AMPLE_PIXELS
    if width * height <= _MAX_WHOLE_PIXELS or factor < 2:
        return picture
    rows = factor * max(1, _STRIP // (width * factor))
    smaller = None
    for top in range(0, height, rows):
        strip = picture.crop((0, top, width, min(top + rows, height)))
        strip = _averageable(strip).reduce(factor)
        smaller = smaller or Image.new(strip.mode, (strip.width, math.ceil(height / factor)))
        smaller.paste(strip, (0, top // factor))
    assert smaller
    smaller.info = {key: value for key, value in picture.info.items() if key != "transparency"}
    return smaller


def _averageable(picture: Image.Image) -> Image.Image:
    """Convert to a mode whose pixels can be averaged: no palette, no transparent colour."""
    if picture.mode.startswith("I"):
        return picture.convert("I")
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture.convert({"1": "L", "P": "RGB"}.get(picture.mode, picture.mode))
