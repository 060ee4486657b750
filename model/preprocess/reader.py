"""The one reader of pictures: the service, `model.load` and training open files through it.

Only the formats of `header` are opened, and only files whose parts are few enough to be read in
about the time that their pixels take. Each kind of pixels is read right, or refused.
"""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image

from model.errors import TooLarge, UnreadablePicture
from model.preprocess.array import to_unit, view_array
from model.preprocess.header import ARRAY, Header, check_exif, check_parts, read_header
from model.preprocess.pixels import Floats

MAX_PIXELS = 178_956_970
"""A picture may have this many pixels where nothing else is said, as Pillow has it."""
MAX_SIDE = 16_384
"""A side of an upload may have this many pixels, because the memory of one row grows with it."""
_AMPLE_PIXELS = 640
"""A reduced image keeps at least this many pixels along its longer side."""
_MAX_WHOLE_PIXELS = 4_000_000
"""An image with more pixels is reduced, whatever its format."""
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0
"""A TIFF's entry that says which number is white, and its value where that is 0."""
_BROKEN = (OSError, ValueError, SyntaxError, IndexError, EOFError, struct.error)
"""The exceptions that Pillow raises for truncated and corrupt files."""


def open_image(
    content: bytes,
    header: Header | None = None,
    *,
    max_pixels: int = MAX_PIXELS,
    max_side: int = MAX_PIXELS,
) -> Image.Image | Floats:
    """Open a picture without decoding it: see `load_image`. Arrays are read, (H, W, C) in [0, 1].

    Args:
        content: of the file.
        header: of the file, if that has been read already.
        max_pixels: that it may have.
        max_side: the pixels that its longer side may have.

    Raises:
        UnsupportedFormat: not one of FORMATS.
        TooLarge: more pixels, or a longer side, than allowed.
        UnreadablePicture: truncated or corrupt, or it has too many parts.
    """
    header = header or read_header(content)
    check_size(header.width, header.height, max_pixels=max_pixels, max_side=max_side)
    if header.format == ARRAY:
        return to_unit(view_array(content))
    check_parts(content, header)
    try:
        picture = Image.open(io.BytesIO(content), formats=[header.format])
    except (*_BROKEN, Image.DecompressionBombError) as error:
        raise UnreadablePicture(f"the picture's header cannot be read: {error}") from error
    # A GIF's first frame may exceed its header.
    check_size(*picture.size, max_pixels=max_pixels, max_side=max_side)
    if picture.mode == "F":
        raise UnreadablePicture("a TIFF of floats has no white: send it as 16 bits, or as an array")
    if picture.mode == "I":
        raise UnreadablePicture("a grey TIFF has at most 16 bits, and none is for the sign")
    return picture


def load_image(picture: Image.Image, *, factor: int = 1) -> Image.Image:
    """Decode the pixels of an opened picture, its first frame.

    Args:
        picture: from `open_image`.
        factor: a JPEG may come smaller by up to this factor.

    Raises:
        UnreadablePicture: truncated or corrupt, or it has too many parts.
    """
    try:
        picture.draft(None, (max(1, picture.width // factor), max(1, picture.height // factor)))
        picture.load()
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture is truncated or corrupt: {error}") from error
    check_exif(picture.info.get("exif", b""))
    if picture.mode == "P" and picture.palette is None:
        raise UnreadablePicture("the picture's palette is missing")
    tags = getattr(picture, "tag_v2", {})
    if picture.mode.startswith("I;16") and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        return Image.fromarray(65_535 - np.asarray(picture, np.uint16))  # Pillow does not
    return picture


def decode(
    content: bytes, header: Header | None = None, *, max_pixels: int
) -> tuple[Image.Image | Floats, float]:
    """Decode the first frame of an upload, whose header may have been read already.

    Large ones come smaller than they are, which is more than enough for a network and saves time
    (JPEGs, while they are decoded) and memory (all others, before they are made grey).

    Returns:
        The image, or an array (H, W, C) in [0, 1]; and how many of the file's pixels along a side
        became one.

    Raises:
        UnsupportedFormat, TooLarge, UnreadablePicture: see `open_image`; a side may have MAX_SIDE.
    """
    picture = open_image(content, header, max_pixels=max_pixels, max_side=MAX_SIDE)
    if not isinstance(picture, Image.Image):
        return picture, 1.0
    longest = max(picture.size)
    smaller = _reduce(load_image(picture, factor=max(1, longest // _AMPLE_PIXELS)))
    return smaller, longest / max(smaller.size)


def check_size(width: int, height: int, *, max_pixels: int, max_side: int = MAX_SIDE) -> None:
    """Refuse a picture that is too large.

    Raises:
        TooLarge: more pixels, or a longer side, than allowed.
    """
    if width * height > max_pixels:
        raise TooLarge(f"a picture may have {max_pixels:,} pixels, this one has {width} x {height}")
    if max(width, height) > max_side:
        raise TooLarge(
            f"a picture's side may have {max_side:,} pixels, this one has {width} x {height}"
        )


def _reduce(picture: Image.Image) -> Image.Image:
    """A large picture smaller by a whole factor: each pixel is the average of several."""
    factor = max(picture.size) // _AMPLE_PIXELS
    if picture.width * picture.height <= _MAX_WHOLE_PIXELS or factor < 2:
        return picture
    smaller = _averageable(picture).reduce(factor)
    smaller.info = {key: value for key, value in picture.info.items() if key != "transparency"}
    return smaller


def _averageable(picture: Image.Image) -> Image.Image:
    """Convert to a mode whose pixels can be averaged: no palette, no transparent colour."""
    mode = {"1": "L", "P": "RGB"}.get(picture.mode, picture.mode)
    if picture.mode.startswith("I"):
        mode = "I"
    elif picture.has_transparency_data:
        mode = "RGBA"
    return picture if picture.mode == mode else picture.convert(mode)
