"""Bytes to pictures and pictures to bytes. Pictures are fully decoded here and nowhere later."""

from __future__ import annotations

import io
import re
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from model.preprocess import WHITE
from service.problems import TooLarge, UnreadablePicture, UnsupportedFormat

Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit; `decode` checks that of the settings instead

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_SIGNATURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP|BM|GIF8[79]a", re.DOTALL)
"""How a file in one of FORMATS begins."""
_DRAFT_PIXELS = 640
"""JPEGs are decoded at a half, a quarter or an eighth of their size, but not below this."""


def decode(content: bytes, *, max_pixels: int) -> Image.Image:
    """Decode the first frame of a picture.

    Large JPEGs come smaller than they are, which is faster and more than enough.

    Args:
        content: a whole file in one of FORMATS.
        max_pixels: largest width x height, checked before anything is decoded.

    Raises:
        UnsupportedFormat: not one of FORMATS.
        TooLarge: more pixels than allowed.
        UnreadablePicture: truncated or corrupt.
    """
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError as error:
        if _SIGNATURE.match(content):
            raise UnreadablePicture("the picture's header is truncated or corrupt") from error
        known = ", ".join(FORMATS)
        raise UnsupportedFormat(f"the picture is none of {known}") from error
    except (OSError, ValueError, SyntaxError, struct.error) as error:
        raise UnreadablePicture(f"the picture's header cannot be read: {error}") from error
    if picture.width * picture.height > max_pixels:
        raise TooLarge(
            f"a picture may have {max_pixels:,} pixels, this one has "
            f"{picture.width} x {picture.height}"
        )
    try:
        picture.draft(None, (_DRAFT_PIXELS, _DRAFT_PIXELS))
        picture.load()
    except (OSError, ValueError, SyntaxError, IndexError, EOFError, struct.error) as error:
        raise UnreadablePicture(f"the picture is truncated or corrupt: {error}") from error
    return picture


def encode_png(image: NDArray[np.float32], *, scale: int = 1) -> bytes:
    """An image (H, W) in [0, 1] as a greyscale PNG, each pixel enlarged to `scale` squared."""
    pixels = (image.clip(0, 1) * WHITE + 0.5).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(scale, 0).repeat(scale, 1)).save(file, "PNG")
    return file.getvalue()
