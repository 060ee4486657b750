"""Fit one image to the size and the look of the network's training images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from model.preprocess.array import scale_array
from model.preprocess.crop import crop, scale_whole
from model.preprocess.pixels import (
    SIXTEEN_BITS,
    Floats,
    median,
    resize,
    to_common_mode,
    to_floats,
    turn_upright,
)
from model.preprocess.prepared import FoundPolarity, Polarity, Prepared
from model.preprocess.strokes import fit_strokes

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.bundle import PreprocessRule

Fit = Literal["auto", "none", "stretch", "crop", "digit", "pair"]


MAX_TIMES = 4
"""A network of any size takes a picture of at most this many times its own pixels."""


class PreprocessError(ValueError):
    """The picture cannot be used in the way that was asked for."""


def prepare(
    picture: Image.Image | Floats,
    shape: tuple[int, int, int],
    *,
    rule: PreprocessRule = "digit",
    fit: Fit = "auto",
    polarity: Polarity = "auto",
    any_size: bool = False,
) -> Prepared:
    """Make a picture look like a training image.

    A picture that already has the network's size is passed through untouched, except for its
    polarity. For networks of photographs (`rule="crop"`) any other is cropped and scaled. For
    networks of strokes it is made upright and grey, freed of its background and uneven light,
    cropped to its strokes, scaled and centred by mass.

    Args:
        picture: decoded, of any mode; or an array (H, W, C) in [0, 1] for a network of photographs
            with C channels.
        shape: (C, H, W) of the network's images.
        rule: the bundle's own; what `fit="auto"` does with a picture of another size.
        fit: `none` takes the pixels as they are, `stretch` scales the whole picture, `crop` its
            middle, `digit` and `pair` find the strokes.
        polarity: found from the border by default; photographs have none.
        any_size: whether `fit="none"` also takes larger pictures, of up to four times as many
            pixels and at least as high and wide.

    Raises:
        PreprocessError: `fit="none"` and the picture has another size than the network's, or
            strokes are looked for in photographs; or it has other channels than the network's.
    """
    channels, height, width = shape
    if not isinstance(picture, Image.Image):
        return _prepare_array(picture, shape, rule=rule, fit=fit)
    if channels not in (1, 3):
        raise PreprocessError(
            f"this network has images of {channels} channels: send an array in a .npy file"
        )
    upright = turn_upright(picture)
    native = upright.size == (width, height)
    chosen = fit if fit != "auto" else ("none" if native else rule)
    if chosen == "none" and not (native or (any_size and _is_larger(upright, width, height))):
        wanted = f"{width}x{height} pixels{f', or up to {MAX_TIMES} times as many' * any_size}"
        raise PreprocessError(f"fit=none needs {wanted}, not {upright.width}x{upright.height}")
    if rule == "crop":
        if chosen in ("digit", "pair"):
            raise PreprocessError(f"fit={chosen} is for networks of digits, this one has images")
        make = crop if chosen == "crop" else scale_whole
        if chosen == "none":
            height, width = upright.height, upright.width
        return Prepared(make(upright, channels, height, width), chosen, None, None)
    if chosen in ("digit", "pair"):
        return fit_strokes(to_grey(upright), height, polarity, rule=chosen)
    grey = crop(upright, 1, height, width)[0] if chosen == "crop" else to_grey(upright)
    if chosen == "stretch":
        grey = resize(grey, height, width)
    found_polarity = border_polarity(grey) if polarity == "auto" else polarity
    image: Floats = grey if found_polarity == "light-on-dark" else 1 - grey
    return Prepared(image[None], chosen, found_polarity, None)


def _prepare_array(
    picture: Floats, shape: tuple[int, int, int], *, rule: PreprocessRule, fit: Fit
) -> Prepared:
    """Fit an array (H, W, C) in [0, 1] to a network of photographs with as many channels."""
    (rows, columns, own), (channels, height, width) = picture.shape, shape
    if rule != "crop" or own != channels:
        wanted = f"networks of pictures with {own} channels" if rule == "crop" else "photographs"
        raise PreprocessError(f"an array of {own} channels is for {wanted}")
    native = (rows, columns) == (height, width)
    chosen = fit if fit != "auto" else ("none" if native else rule)
    if chosen in ("digit", "pair"):
        raise PreprocessError(f"fit={chosen} is for networks of digits, this one has images")
    if chosen == "none" and not native:
        raise PreprocessError(f"fit=none needs {width}x{height} pixels, not {columns}x{rows}")
    image = scale_array(picture, height, width, middle=chosen == "crop")
    return Prepared(image, chosen, None, None)


def _is_larger(picture: Image.Image, width: int, height: int) -> bool:
    """Return whether a network of any size takes the image."""
    pixels = picture.width * picture.height
    covers = picture.width >= width and picture.height >= height
    return covers and pixels <= MAX_TIMES * width * height


def to_grey(picture: Image.Image) -> Floats:
    """Convert any mode to luminance (H, W) in [0, 1], transparency on a suitable background."""
    picture = to_common_mode(picture)
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / SIXTEEN_BITS).clip(0, 1)
    if picture.has_transparency_data:
        return _flatten(picture.convert("RGBA"))
    return to_floats(picture if picture.mode == "L" else picture.convert("L"))


def _flatten(picture: Image.Image) -> Floats:
    """RGBA to (H, W): strokes are laid on what contrasts with them, paper on more of the same.

    Where most of the picture is opaque it is paper, cut out or with a margin.
    """
    grey = to_floats(picture.convert("RGB").convert("L"))
    alpha = to_floats(picture.getchannel("A"))
    covered = float(alpha.sum())
    if covered > alpha.size / 2:
        background = float(np.median(grey[alpha > 0.5]))
    else:
        background = float(covered > 0 and float((grey * alpha).sum()) / covered < 0.5)
    return np.asarray(grey * alpha + (1 - alpha) * background, np.float32)


def border_polarity(grey: Floats) -> FoundPolarity:
    """The polarity of a picture (H, W) in [0, 1] whose border is background."""
    border = np.concatenate((grey[0], grey[-1], grey[:, 0], grey[:, -1]))
    return "light-on-dark" if median(border) <= 0.5 else "dark-on-light"
