"""Images and their pixels: convert them between bytes and floats, rotate them and resize them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from model.errors import UnreadablePicture

Floats = NDArray[np.float32]
Area = tuple[float, float, float, float]
FoundPolarity = Literal["light-on-dark", "dark-on-light"]
Polarity = Literal["auto", "light-on-dark", "dark-on-light"]

_BETWEEN = {"La": "LA", "LAB": "RGB"}
"""Modes that Pillow does not convert to L, and those through which it does."""

WHITE = 255
"""The pixel value that becomes 1.0."""
SIXTEEN_BITS = 65_535
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture upright, by its orientation (EXIF)."""
_TURNED = frozenset({"exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"})
"""The metadata that say how to turn a picture."""
_EXIF_FAULTS = (
    ArithmeticError,
    LookupError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)
"""The exceptions that Pillow raises for damaged EXIF data."""


class Box(NamedTuple):
    """A rectangle in a picture, in pixels. Its right and bottom lie outside."""

    left: int
    top: int
    right: int
    bottom: int

    def scaled(self, across: float, down: float) -> Box:
        """Return the same rectangle in an image so many times as wide and as high."""
        return Box(
            round(self.left * across),
            round(self.top * down),
            round(self.right * across),
            round(self.bottom * down),
        )


@dataclass(frozen=True)
class Prepared:
    """An image ready for the network, and what was done to make it."""

    image: Floats
    """The image (C, H, W) in [0, 1]. Strokes are light on dark."""
    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None
    """The polarity of the image as uploaded; None for photographs."""
    box: Box | None
    """The strokes' rectangle in the upright image; None if it was not looked for or nothing was
    found.
    """


def scale(pixels: NDArray[np.uint8] | Image.Image) -> Floats:
    """Scale bytes of any shape, or those of a picture, to [0, 1]."""
    return np.asarray(np.asarray(pixels) / np.float32(WHITE), np.float32)


def to_image(grey: Floats) -> Image.Image:
    """Convert (H, W) in [0, 1] to a picture of bytes."""
    return Image.fromarray((grey * WHITE + 0.5).astype(np.uint8))


def resize(grey: Floats, height: int, width: int) -> Floats:
    """Scale (H, W) to another height and width: by averages if both shrink, else interpolated."""
    if grey.shape == (height, width):
        return grey
    image = Image.fromarray(grey)
    if height < grey.shape[0] and width < grey.shape[1]:
        resized = image.resize((width, height), Image.Resampling.BOX)
    else:
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.float32).clip(0, 1)


def middle_box(columns: int, rows: int, height: int, width: int) -> Area:
    """The largest rectangle of a shape in the middle of a picture: left, top, right, bottom."""
    factor = min(columns / width, rows / height)
    left = max(0.0, (columns - width * factor) / 2)  # the product is rounded, perhaps up
    top = max(0.0, (rows - height * factor) / 2)
    return left, top, columns - left, rows - top


def resample(picture: Image.Image, height: int, width: int, box: Area) -> Image.Image:
    """Scale a box of a picture: by averages if neither side grows, else interpolated."""
    left, top, right, bottom = box
    shrinks = right - left >= width and bottom - top >= height
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BICUBIC
    return picture.resize((width, height), method, box=box)


def shrink(grey: Floats, longest: int) -> Floats:
    """Scale (H, W) down so that its longer side has at most `longest` pixels."""
    factor = min(1.0, longest / max(grey.shape))
    height, width = (max(1, round(side * factor)) for side in grey.shape)
    return resize(grey, height, width)


def median(values: NDArray[np.floating]) -> float:
    """The median of one or more values (N,), equal to numpy's to the last bit."""
    ordered, middle = np.sort(values), len(values) // 2
    return float((ordered[-1 - middle] + ordered[middle]) / 2)


def to_common_mode(picture: Image.Image) -> Image.Image:
    """Convert a mode that Pillow does not convert to L to one that it does.

    Raises:
        UnreadablePicture: a grey pixel has a sign, or more than 16 bits.
    """
    if picture.mode == "I":
        least, most = picture.getextrema()
        if not 0 <= least <= most <= SIXTEEN_BITS:  # type: ignore[operator]  # one band's numbers
            raise UnreadablePicture(f"grey pixels have values from 0 to {SIXTEEN_BITS:,}")
    between = _BETWEEN.get(picture.mode)
    return picture.convert(between) if between else picture


def turn_upright(picture: Image.Image) -> Image.Image:
    """Rotate a picture as its EXIF says. One with damaged EXIF is not rotated."""
    try:
        if picture.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return picture
        picture.load()  # which turns a TIFF
        orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
    except _EXIF_FAULTS:
        return picture
    if orientation not in _TURNS:
        return picture
    # ImageOps.exif_transpose would also read and write all other entries.
    upright = picture.transpose(_TURNS[orientation])
    upright.info = {key: value for key, value in picture.info.items() if key not in _TURNED}
    return upright
