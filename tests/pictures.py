"""Pictures of digits as people have them, made from 28x28 digits and a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from PIL import ExifTags, Image, ImageFilter

Digit: TypeAlias = NDArray[np.uint8]
Plane: TypeAlias = NDArray[np.float32]  # ink coverage or light, 0 to 1
Colour: TypeAlias = tuple[int, int, int]
Size: TypeAlias = tuple[int, int]  # width and height in pixels, as Pillow has it

PENS: tuple[Colour, ...] = ((30, 30, 34), (28, 48, 140), (20, 24, 70), (88, 88, 92), (120, 24, 36))
PAPERS: tuple[Colour, ...] = ((250, 250, 248), (244, 240, 228), (236, 238, 242), (238, 232, 224))
CRAYONS: tuple[Colour, ...] = ((0, 0, 0), (255, 255, 255), (214, 40, 40), (30, 90, 210))
RATIOS = (1.0, 5 / 4, 4 / 3, 3 / 2, 16 / 9)
# For each EXIF orientation, the turn of an upright picture that leaves the tag to be obeyed.
STORED_TURNS = {
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}
DIGIT_SIDE = 20  # the box that an MNIST digit fills, in its own pixels
BORDER = 0.05  # least distance from ink to edge, as a share of the shorter side


@dataclass(frozen=True)
class Picture:
    """An encoded picture and its media type, as an upload carries them."""

    content: bytes
    media_type: str


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    """A data set's image (C, H, W), grey or in colour, as a PNG."""
    return _encode(Image.fromarray(pixels.transpose(1, 2, 0).squeeze()), "PNG").content


def kinds() -> tuple[str, ...]:
    """Name every kind of picture that `render` makes."""
    return tuple(_RENDERERS)


def render(kind: str, digit: Digit, rng: Generator) -> Picture:
    """Make one picture of a digit, with all its accidents drawn from `rng`.

    Args:
        kind: one of `kinds()`.
        digit: (28, 28), light strokes on black.
        rng: the only source of chance: equal states give equal bytes.
    """
    return _RENDERERS[kind](digit, rng)


def _small_off_centre(digit: Digit, rng: Generator) -> Picture:
    sheet = _place(_crop(np.asarray(digit / 255, np.float32)), (64, 64), rng)
    return _encode(_paint_grey(sheet, rng, np.uint8), "PNG")


def _photo_jpeg(digit: Digit, rng: Generator) -> Picture:
    size = _choose_photo_size(rng)
    turn = rng.uniform(-10, 10)
    ink = _place(_trace(digit, rng.uniform(0.25, 0.7) * min(size), rng, turn), size, rng)
    page = _paint(ink, _choose(PENS, rng), _choose(PAPERS, rng))
    return _encode(_photograph(page, rng), "JPEG", quality=int(rng.integers(70, 93)))


def _exif_jpeg(digit: Digit, rng: Generator) -> Picture:
    size = _choose_photo_size(rng)
    ink = _place(_trace(digit, rng.uniform(0.3, 0.7) * min(size), rng), size, rng)
    upright = _paint(ink, _choose(PENS, rng), (255, 255, 255))
    orientation = int(rng.choice(list(STORED_TURNS)))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return _encode(upright.transpose(STORED_TURNS[orientation]), "JPEG", exif=exif, quality=88)


def _canvas_rgba(digit: Digit, rng: Generator) -> Picture:
    alpha = _sketch(digit, rng)
    pixels = np.zeros((*alpha.shape, 4), np.uint8)
    pixels[..., :3] = np.where(alpha[..., None] > 0, rng.choice(CRAYONS), 0)
    pixels[..., 3] = np.rint(alpha * 255)
    return _encode(Image.fromarray(pixels), "PNG")


def _grey16_png(digit: Digit, rng: Generator) -> Picture:
    return _encode(_paint_grey(_sketch(digit, rng), rng, np.uint16), "PNG")


_RENDERERS: dict[str, Callable[[Digit, Generator], Picture]] = {
    "small-off-centre": _small_off_centre,
    "photo-jpeg": _photo_jpeg,
    "exif-jpeg": _exif_jpeg,
    "canvas-rgba": _canvas_rgba,
    "grey16-png": _grey16_png,
}


def _trace(digit: Digit, side: float, rng: Generator, turn: float = 0.0) -> Plane:
    """Redraw a digit `side` pixels large, turned by degrees: (h, w), cropped to its ink."""
    scale = side / DIGIT_SIDE
    enlarged = Image.fromarray(digit).resize((round(28 * scale),) * 2, Image.Resampling.BICUBIC)
    smooth = enlarged.filter(ImageFilter.GaussianBlur(0.65 * scale))
    turned = smooth.rotate(turn, Image.Resampling.BICUBIC, expand=True)
    level = np.asarray(turned, np.float32) / 255 - np.float32(rng.uniform(0.34, 0.46))
    return _crop(np.clip(level * np.float32(1.5 * scale) + np.float32(0.5), 0, 1))


def _crop(ink: Plane) -> Plane:
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _place(ink: Plane, size: Size, rng: Generator) -> Plane:
    """Put ink (h, w) somewhere inside an empty sheet, clear of its edges."""
    width, height = size
    sheet = np.zeros((height, width), np.float32)
    border = round(BORDER * min(size))
    top = rng.integers(border, height - ink.shape[0] - border + 1)
    left = rng.integers(border, width - ink.shape[1] - border + 1)
    sheet[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return sheet


def _sketch(digit: Digit, rng: Generator) -> Plane:
    """Draw a digit off-centre on a sheet of 200 to 500 pixels a side."""
    width, height = (int(side) for side in rng.integers(200, 501, 2))
    ink = _trace(digit, rng.uniform(0.35, 0.8) * min(width, height), rng)
    return _place(ink, (width, height), rng)


def _paint(ink: Plane, pen: ArrayLike, paper: ArrayLike) -> Image.Image:
    """Lay a pen's colour over a paper's: (h, w) of ink to an RGB picture."""
    stroke, background = np.asarray(pen, np.float32), np.asarray(paper, np.float32)
    pixels = background + ink[..., None] * (stroke - background)
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _paint_grey(ink: Plane, rng: Generator, depth: type[np.uint8 | np.uint16]) -> Image.Image:
    """Lay ink (h, w) down in grey, dark on light or light on dark, near the ends of the range."""
    background, stroke = rng.permutation((rng.uniform(0, 0.15), rng.uniform(0.85, 1)))
    levels = (background + ink * (stroke - background)) * np.iinfo(depth).max
    return Image.fromarray(np.rint(levels).astype(depth))


def _photograph(page: Image.Image, rng: Generator) -> Image.Image:
    """Take a page (RGB) through uneven light, a soft lens and a noisy sensor."""
    lit = np.asarray(page, np.float32) * _shine(page.size, rng)[..., None]
    blur = ImageFilter.GaussianBlur(rng.uniform(0.6, 0.004 * min(page.size)))
    seen = np.asarray(Image.fromarray(lit.astype(np.uint8)).filter(blur), np.float32)
    noise = rng.standard_normal(seen.shape, np.float32) * np.float32(rng.uniform(2, 8))
    return Image.fromarray(np.clip(seen + noise, 0, 255).astype(np.uint8))


def _shine(size: Size, rng: Generator) -> Plane:
    """Light a sheet from one side and darken its corners: (h, w), 1 where brightest."""
    width, height = size
    y, x = np.ogrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    angle = rng.uniform(0, 2 * np.pi)
    slope = (x * np.cos(angle) + y * np.sin(angle)) / np.sqrt(2)
    lamp = 1 - rng.uniform(0.05, 0.35) * (1 + slope) / 2
    vignette = 1 - rng.uniform(0, 0.2) * (x**2 + y**2) / 2
    return np.asarray(lamp * vignette, np.float32)


def _choose_photo_size(rng: Generator) -> Size:
    """Mostly small, for photos take long to make; one of eight is decoded at half its size."""
    short = 800 if rng.integers(8) == 0 else int(rng.integers(300, 451))
    width, height = rng.permutation((short, round(short * rng.choice(RATIOS)))).tolist()
    return width, height


def _choose(colours: tuple[Colour, ...], rng: Generator) -> Colour:
    """Pick a colour and shift each of its channels a little."""
    shifted = rng.choice(colours) + rng.integers(-8, 9, 3)
    red, green, blue = np.clip(shifted, 0, 255).tolist()
    return red, green, blue


def _encode(image: Image.Image, form: str, **options: object) -> Picture:
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return Picture(buffer.getvalue(), f"image/{form.lower()}")
