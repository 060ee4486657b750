"""From a picture as people have it to the image that the network was trained on.

The only copy: evaluation and serving come through here, and training scales its batches by the
same number on its own device. numpy and Pillow alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from model.bundle import PreprocessRule

Floats = NDArray[np.float32]
Fit = Literal["auto", "none", "stretch", "digit", "pair"]
Polarity = Literal["auto", "light-on-dark", "dark-on-light"]

WHITE = 255
"""The pixel value that becomes 1.0."""
_BOX: dict[PreprocessRule, float] = {"digit": 20 / 28, "pair": 23 / 36}
"""Share of the image's side that the longer side of the strokes takes.

20 of 28 pixels are what MNIST was made with (LeCun, Cortes and Burges). Two such digits, each
moved by up to four pixels on 36x36, take 23 on average.
"""
_WORKING_SIZE = 256
"""Longest side, in pixels, at which strokes are looked for."""
_THUMBNAIL_SIZE = 48
"""Longest side, in pixels, at which the ground's light is measured."""
_BORDER = 0.85
"""Pixels further out than this, of 1, are the border."""
_STROKE_CONTRAST = 0.35
"""Border pixels further than this from their median, of 1, are strokes."""
_THINNEST_STROKE = 2.0
"""Width in pixels below which a fitted stroke is thickened; MNIST's are two to four wide."""
_FAINTEST_INK = 0.04
"""Contrast, of 1, below which a picture counts as blank."""
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


class PreprocessError(ValueError):
    """The picture cannot be used in the way that was asked for."""


class Box(NamedTuple):
    """A rectangle in a picture, in pixels; right and bottom lie outside."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Prepared:
    """An image ready for the network, and what was done to make it."""

    image: Floats
    """(1, H, W) in [0, 1], light strokes on dark."""
    fit: Literal["none", "stretch", "digit", "pair"]
    polarity: Literal["light-on-dark", "dark-on-light"]
    """Of the picture as it came."""
    box: Box | None
    """Where the strokes were found, in the upright picture; None if not looked for or blank."""


def scale(pixels: NDArray[np.uint8]) -> Floats:
    """Bytes to [0, 1]: (N, H, W) to (N, 1, H, W)."""
    return (pixels[:, None] / np.float32(WHITE)).astype(np.float32)


def prepare(
    picture: Image.Image,
    size: int,
    *,
    rule: PreprocessRule = "digit",
    fit: Fit = "auto",
    polarity: Polarity = "auto",
) -> Prepared:
    """Make a picture look like a training image.

    A picture that already has the network's size is passed through untouched, but for its
    polarity. Any other is made upright and grey, freed of its ground and uneven light, cropped to
    its strokes, scaled and centred by mass.

    Args:
        picture: decoded, of any mode.
        size: height and width of the network's images, in pixels.
        rule: the bundle's own; what `fit="auto"` does with a picture of another size.
        fit: `none` takes the pixels as they are, `stretch` scales the whole picture, `digit` and
            `pair` find the strokes.
        polarity: found from the border by default.

    Raises:
        PreprocessError: `fit="none"` and the picture has another size than the network's.
    """
    upright = _turn_upright(picture)
    native = upright.size == (size, size)
    chosen = fit if fit != "auto" else ("none" if native else rule)
    if chosen == "none" and not native:
        width, height = upright.size
        raise PreprocessError(f"fit=none needs {size}x{size} pixels, not {width}x{height}")
    grey = to_grey(upright)
    if chosen in ("digit", "pair"):
        return fit_strokes(grey, size, polarity, rule=chosen)
    if chosen == "stretch":
        grey = _resize(grey, size, size)
    found = _border_polarity(grey) if polarity == "auto" else polarity
    image: Floats = grey if found == "light-on-dark" else 1 - grey
    return Prepared(image[None], chosen, found, None)


def to_grey(picture: Image.Image) -> Floats:
    """Any mode to (H, W) luminance in [0, 1]; transparency is laid on a contrasting ground."""
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / 65535).clip(0, 1)
    if picture.has_transparency_data:
        return _flatten(picture.convert("RGBA"))
    return _to_floats(picture.convert("L"))


def fit_strokes(
    grey: Floats, size: int, polarity: Polarity, *, rule: PreprocessRule = "digit"
) -> Prepared:
    """Find the strokes and lay them out as the training images have them.

    Args:
        grey: (H, W) in [0, 1].
        size: of the result, in pixels.
        polarity: of the picture, or `auto`.
        rule: `digit` makes the longer side of the strokes' box 20 of 28 pixels, and their centre
            of mass the centre, as MNIST does; `pair` makes it 23 of 36, and its middle the centre.
    """
    small = _shrink(grey, _WORKING_SIZE)
    shrink = max(small.shape) / max(grey.shape)
    ink, found = find_ink(small, polarity)
    box = _box(ink)
    if box is None:
        return Prepared(np.zeros((1, size, size), np.float32), rule, found, None)
    source = Box(*(round(edge / shrink) for edge in box))
    target = _BOX[rule] * size
    ink = _thicken(ink, box, target)
    box = cast("Box", _box(ink))
    crop = ink[box.top : box.bottom, box.left : box.right]
    factor = target / max(crop.shape)
    scaled = _resize(crop, *(max(1, round(side * factor)) for side in crop.shape))
    image = _centre(scaled / max(scaled.max(), 0.5), size, by_mass=rule == "digit")
    return Prepared(image[None], rule, found, source)


def find_ink(
    grey: Floats, polarity: Polarity
) -> tuple[Floats, Literal["light-on-dark", "dark-on-light"]]:
    """Separate strokes from ground.

    Returns:
        (H, W) ink in [0, 1], all zero if the picture is blank; and the polarity found or given.
    """
    smooth = _to_floats(_to_image(grey).filter(ImageFilter.BoxBlur(1)))
    residual = smooth - illumination(smooth)
    if polarity == "auto":
        lighter = np.square(residual.clip(min=0)).sum()
        darker = np.square(residual.clip(max=0)).sum()
        polarity = "light-on-dark" if lighter >= darker else "dark-on-light"
    ink = (residual if polarity == "light-on-dark" else -residual).clip(min=0)
    if ink.max() < _FAINTEST_INK:
        return np.zeros_like(ink), polarity
    threshold = _otsu(ink)
    strokes = ink > threshold
    noise = 1.4826 * float(np.median(np.abs(residual[~strokes]))) if not strokes.all() else 0.0
    level = float(np.percentile(ink[strokes], 75)) if strokes.any() else 0.0
    if level < max(_FAINTEST_INK, 4 * noise):
        return np.zeros_like(ink), polarity
    low, high = max(3 * noise, 0.2 * level), 0.8 * level
    return ((ink - low) / (max(high, low + 1e-3) - low)).clip(0, 1).astype(np.float32), polarity


def illumination(grey: Floats) -> Floats:
    """The picture's ground as a smooth surface: a quadratic, fitted without the strokes.

    Starts from the border, which rarely holds strokes, then takes in all pixels near the surface.
    """
    thumbnail = _shrink(grey, _THUMBNAIL_SIZE)
    x, y = _coordinates(thumbnail)
    values = thumbnail.ravel().astype(np.float64)
    terms = np.stack(np.broadcast_arrays(1.0, x, y, x * y, x * x, y * y), -1).reshape(-1, 6)
    border = (np.maximum(np.abs(x), np.abs(y)) > _BORDER).ravel()
    ground = border & (np.abs(values - np.median(values[border])) < _STROKE_CONTRAST)
    if not ground.any():  # half of the border is dark and half is light
        ground = border
    solution = np.zeros(6)
    for _ in range(4):
        known = terms[ground]
        # In narrow pictures x * x is as good as constant: prefer the constant.
        ridge = 1e-6 * len(known) * np.diag([0.0, 1, 1, 1, 1, 1])
        solution = np.linalg.solve(known.T @ known + ridge, known.T @ values[ground])
        distance = np.abs(values - terms @ solution)
        spread = 1.4826 * float(np.median(distance[ground]))
        ground = distance < max(3 * spread, 0.02)
        if not ground.any():
            break
    x, y = _coordinates(grey)
    level, across, down, twist, across_squared, down_squared = solution.astype(np.float32)
    return np.asarray(
        level + x * (across + across_squared * x) + y * (down + down_squared * y) + twist * (x * y)
    )


def _turn_upright(picture: Image.Image) -> Image.Image:
    """Turn a picture as its EXIF says; one whose EXIF is damaged stays as it came."""
    try:
        return ImageOps.exif_transpose(picture)
    except _EXIF_FAULTS:
        return picture


def _coordinates(grey: Floats) -> tuple[Floats, Floats]:
    """X (1, W) and y (H, 1) of a picture (H, W), from -1 to 1."""
    height, width = grey.shape
    across = np.linspace(-1, 1, width, dtype=np.float32)
    return across[None, :], np.linspace(-1, 1, height, dtype=np.float32)[:, None]


def _flatten(picture: Image.Image) -> Floats:
    """RGBA to (H, W), laid on white if the strokes are dark and on black if they are light."""
    grey = _to_floats(picture.convert("RGB").convert("L"))
    alpha = _to_floats(picture.getchannel("A"))
    covered = float(alpha.sum())
    dark = covered > 0 and float((grey * alpha).sum()) / covered < 0.5
    return np.asarray(grey * alpha + (1 - alpha) * dark, np.float32)


def _border_polarity(grey: Floats) -> Literal["light-on-dark", "dark-on-light"]:
    border = np.concatenate((grey[0], grey[-1], grey[:, 0], grey[:, -1]))
    return "light-on-dark" if np.median(border) <= 0.5 else "dark-on-light"


def _otsu(ink: Floats) -> float:
    """The threshold that separates ink (H, W) best into two groups (Otsu, 1979)."""
    counts, edges = np.histogram(ink, bins=128, range=(0, max(float(ink.max()), 1e-6)))
    middles = (edges[:-1] + edges[1:]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    sums = (counts * middles).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * np.square(sums / below - (sums[-1] - sums) / above)
    return float(edges[1:][np.nanargmax(between[:-1])])


def _box(ink: Floats) -> Box | None:
    """The rectangle around what is at least half inked, if anything is."""
    strokes = ink > 0.5
    rows, columns = np.flatnonzero(strokes.any(axis=1)), np.flatnonzero(strokes.any(axis=0))
    if not len(rows):
        return None
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _thicken(ink: Floats, box: Box, target: float) -> Floats:
    """Widen strokes that would become thinner than MNIST's when the box is scaled to `target`."""
    strokes = ink > 0.5
    outline = int((strokes[1:] != strokes[:-1]).sum() + (strokes[:, 1:] != strokes[:, :-1]).sum())
    # A stroke of length L and width w has area Lw; its outline, counted along rows and columns,
    # is 2L times 4 / pi on average over directions.
    width = float(strokes.sum()) / max(outline * np.pi / 8, 1e-6)
    longest = max(box.right - box.left, box.bottom - box.top)
    missing = _THINNEST_STROKE * longest / target - width
    if missing < 1:
        return ink
    reach = min(round(missing / 2), 15)
    padded = np.pad(ink, reach)
    grown = _to_image(padded).filter(ImageFilter.MaxFilter(2 * reach + 1))
    return _to_floats(grown)


def _centre(strokes: Floats, size: int, *, by_mass: bool) -> Floats:
    """Lay strokes on an empty square, their centre of mass or of their box in its middle."""
    height, width = strokes.shape
    row, column = (height - 1) / 2, (width - 1) / 2
    if by_mass:
        total = float(strokes.sum())
        row = float((strokes.sum(axis=1) * np.arange(height)).sum()) / total
        column = float((strokes.sum(axis=0) * np.arange(width)).sum()) / total
    top = min(max(round((size - 1) / 2 - row), 0), size - height)
    left = min(max(round((size - 1) / 2 - column), 0), size - width)
    square = np.zeros((size, size), np.float32)
    square[top : top + height, left : left + width] = strokes
    return square


def _shrink(grey: Floats, longest: int) -> Floats:
    """Scale (H, W) down so that its longer side has at most `longest` pixels."""
    factor = min(1.0, longest / max(grey.shape))
    height, width = (max(1, round(side * factor)) for side in grey.shape)
    return _resize(grey, height, width)


def _resize(grey: Floats, height: int, width: int) -> Floats:
    if grey.shape == (height, width):
        return grey
    image = Image.fromarray(grey)
    if height < grey.shape[0] and width < grey.shape[1]:
        resized = image.resize((width, height), Image.Resampling.BOX)
    else:
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.float32).clip(0, 1)


def _to_image(grey: Floats) -> Image.Image:
    return Image.fromarray((grey * WHITE + 0.5).astype(np.uint8))


def _to_floats(picture: Image.Image) -> Floats:
    return np.asarray(picture, np.float32) / np.float32(WHITE)
