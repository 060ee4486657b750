"""Pictures as their EXIF data says they are to be seen."""

from __future__ import annotations

import struct

from PIL import ExifTags, Image, ImageOps

_EXIF_FAULTS = (
    ArithmeticError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
"""What Pillow raises over damaged EXIF data."""


def turn_upright(picture: Image.Image) -> Image.Image:
    """Rotate a picture as its EXIF says; one whose EXIF is damaged stays as it came."""
    try:
        if picture.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return picture
        return ImageOps.exif_transpose(picture)
    except _EXIF_FAULTS:
        return picture
