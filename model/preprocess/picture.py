"""Fit one image to the size and the look of the network's training images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from model.errors import InvalidParameter
from model.preprocess.pixels import (
    SIXTEEN_BITS,
    Floats,
    FoundPolarity,
    Polarity,
    Prepared,
    median,
    middle_box,
    resample,
    resize,
    scale,
    to_common_mode,
    turn_upright,
)
from model.preprocess.strokes import fit_strokes

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.bundle import PreprocessRule

Fit = Literal["auto", "none", "stretch", "crop", "digit", "pair"]


MAX_TIMES = 4
"""A network of any size takes a picture of at most this many times its own pixels."""


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
        InvalidParameter: `fit="none"` and the picture has another size than the network's, or
            strokes are looked for in photographs; or it has other channels than the network's.
    """
    channels, height, width = shape
    _check_channels(picture, channels, rule)
    if isinstance(picture, Image.Image):
        picture = turn_upright(picture)
    else:
        any_size = False
    columns, rows = _size_of(picture)
    chosen = fit if fit != "auto" else ("none" if (rows, columns) == (height, width) else rule)
    if chosen == "none":
        _check_size((columns, rows), (width, height), any_size=any_size)
    if rule == "crop":
        if chosen in ("digit", "pair"):
            detail = f"fit={chosen} is for networks of digits, this one has images"
            raise InvalidParameter(detail, parameter="fit")
        if chosen == "none":
            height, width = rows, columns
        image = scale_picture(picture, channels, height, width, middle=chosen == "crop")
        return Prepared(image, chosen, None, None)
    assert isinstance(picture, Image.Image)
    if chosen in ("digit", "pair"):
        return fit_strokes(to_grey(picture), height, polarity, rule=chosen)
    if chosen == "crop":
        (grey,) = scale_picture(picture, 1, height, width, middle=True)
    else:
        grey = to_grey(picture)
    if chosen == "stretch":
        grey = resize(grey, height, width)
    found_polarity = border_polarity(grey) if polarity == "auto" else polarity
    light = grey if found_polarity == "light-on-dark" else 1 - grey
    return Prepared(np.asarray(light)[None], chosen, found_polarity, None)


def _check_channels(picture: Image.Image | Floats, channels: int, rule: PreprocessRule) -> None:
    if isinstance(picture, Image.Image):
        if channels in (1, 3):
            return
        detail = f"this network has images of {channels} channels: send an array in a .npy file"
    else:
        own = picture.shape[2]
        if rule == "crop" and own == channels:
            return
        users = f"networks of pictures with {own} channels" if rule == "crop" else "photographs"
        detail = f"an array of {own} channels is for {users}"
    raise InvalidParameter(detail, parameter="fit")


def _check_size(size: tuple[int, int], wanted: tuple[int, int], *, any_size: bool) -> None:
    """Refuse a picture whose pixels cannot be taken as they are. Sizes are width and height."""
    (width, height), (least_width, least_height) = size, wanted
    most = MAX_TIMES * least_width * least_height
    larger = width >= least_width and height >= least_height and width * height <= most
    if size != wanted and not (any_size and larger):
        needed = f"{least_width}x{least_height} pixels"
        needed += f", or up to {MAX_TIMES} times as many" * any_size
        detail = f"fit=none needs {needed}, not {width}x{height}"
        raise InvalidParameter(detail, parameter="fit")


def _size_of(picture: Image.Image | Floats) -> tuple[int, int]:
    if isinstance(picture, Image.Image):
        return picture.size
    rows, columns, _ = picture.shape
    return columns, rows


def scale_picture(
    picture: Image.Image | Floats, channels: int, height: int, width: int, *, middle: bool
) -> Floats:
    """Scale an upright picture to the network's size: (C, H, W) in [0, 1].

    Args:
        picture: decoded, of any mode; transparency is laid on white. Or an array (H, W, C), which
            keeps its channels.
        channels: of the picture's result: 1 for grey, 3 for colour.
        height, width: of the result, in pixels.
        middle: whether the largest rectangle of that shape in the middle is scaled, not all.
    """
    columns, rows = _size_of(picture)
    box = middle_box(columns, rows, height, width) if middle else (0, 0, columns, rows)
    if isinstance(picture, Image.Image):
        flat = _lay_on_white(picture, "L" if channels == 1 else "RGB")
        pixels = scale(resample(flat, height, width, box))
        return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
    planes = map(Image.fromarray, np.ascontiguousarray(picture.transpose(2, 0, 1)))
    scaled = [np.asarray(resample(plane, height, width, box)) for plane in planes]
    return np.stack(scaled).clip(0, 1)


def _lay_on_white(picture: Image.Image, mode: str) -> Image.Image:
    """Any mode to L or RGB."""
    picture = to_common_mode(picture)
    if picture.mode.startswith("I"):
        sixteen_bits = np.asarray(picture, np.float32) / 257
        return Image.fromarray((sixteen_bits.clip(0, 255) + 0.5).astype(np.uint8)).convert(mode)
    if picture.has_transparency_data:
        cut_out = picture.convert("RGBA")
        white = Image.new("RGBA", cut_out.size, "white")
        return Image.alpha_composite(white, cut_out).convert(mode)
    return picture.convert(mode)


def to_grey(picture: Image.Image) -> Floats:
    """Convert any mode to luminance (H, W) in [0, 1], transparency on a suitable background."""
    picture = to_common_mode(picture)
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / SIXTEEN_BITS).clip(0, 1)
    if picture.has_transparency_data:
        return _lay_on_contrast(picture.convert("RGBA"))
    return scale(picture if picture.mode == "L" else picture.convert("L"))


def _lay_on_contrast(picture: Image.Image) -> Floats:
    """RGBA to (H, W): strokes are laid on what contrasts with them, paper on more of the same.

    Where most of the picture is opaque it is paper, cut out or with a margin.
    """
    grey = scale(picture.convert("RGB").convert("L"))
    alpha = scale(picture.getchannel("A"))
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
