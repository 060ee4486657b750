"""Crop and scale photographs, grey or in colour, to the network's size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from model.preprocess.pixels import Floats, to_common_mode, to_floats, turn_upright


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
    factor = min(upright.width / width, upright.height / height)
    left = max(0.0, (upright.width - width * factor) / 2)  # the product is rounded, perhaps up
    top = max(0.0, (upright.height - height * factor) / 2)
    box = (left, top, upright.width - left, upright.height - top)
    return scale_whole(upright, channels, height, width, box=box)


def scale_whole(
    picture: Image.Image,
    channels: int,
    height: int,
    width: int,
    *,
    box: tuple[float, float, float, float] | None = None,
) -> Floats:
    """Scale a picture, or a box of it, to the network's size: (C, H, W) in [0, 1]."""
    flat = _flatten(picture, channels)
    left, top, right, bottom = box or (0, 0, flat.width, flat.height)
    shrinks = right - left >= width and bottom - top >= height
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BICUBIC
    pixels = to_floats(flat.resize((width, height), method, box=(left, top, right, bottom)))
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
