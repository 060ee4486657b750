"""Crop and scale photographs, grey or in colour, to the network's size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from model.preprocess.pixels import (
    Area,
    Floats,
    middle_box,
    resample,
    to_common_mode,
    to_floats,
    turn_upright,
)


def crop(picture: Image.Image, channels: int, height: int, width: int) -> Floats:
    """The largest rectangle of the network's shape in the middle of a picture, scaled.

    Args:
        picture: decoded, of any mode; transparency is laid on white.
        channels: 1 for grey, 3 for colour.
        height, width: of the result, in pixels.

    Returns:
        (C, H, W) in [0, 1].
    """
    upright = turn_upright(picture)
    return scale_whole(
        upright, channels, height, width, box=middle_box(*upright.size, height, width)
    )


def scale_whole(
    picture: Image.Image,
    channels: int,
    height: int,
    width: int,
    *,
    box: Area | None = None,
) -> Floats:
    """Scale a picture, or a box of it, to the network's size: (C, H, W) in [0, 1]."""
    flat = _flatten(picture, channels)
    pixels = to_floats(resample(flat, height, width, box or (0, 0, *flat.size)))
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _flatten(picture: Image.Image, channels: int) -> Image.Image:
    """Any mode to L or RGB."""
    mode = "L" if channels == 1 else "RGB"
    picture = to_common_mode(picture)
    if picture.mode.startswith("I"):
        sixteen_bits = np.asarray(picture, np.float32) / 257
        return Image.fromarray((sixteen_bits.clip(0, 255) + 0.5).astype(np.uint8)).convert(mode)
    if picture.has_transparency_data:
        cut_out = picture.convert("RGBA")
        white = Image.new("RGBA", cut_out.size, "white")
        return Image.alpha_composite(white, cut_out).convert(mode)
    return picture.convert(mode)
