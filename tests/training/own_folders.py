"""Folders of pictures by class: shapes, letters, photographs.

`python -m tests.training.own_folders FOLDER` writes all three, twenty pictures of each class, and
beside each, with the ending `-new`, as many to test on. Photographs need the package scikit-image,
whose pictures they are cropped from: all are CC0 or in the public domain.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from training.data.pictures import held_out_mask

SHAPES = ("cross", "ring", "square", "star", "triangle", "wave")
LETTERS = "abcdefghijklmnopqrst"
PHOTOGRAPHS = (
    *("astronaut.png", "brick.png", "chelsea.png", "coffee.png", "grass.png", "gravel.png"),
    *("hubble_deep_field.jpg", "rocket.jpg"),
)
_FONTS = ("DejaVuSa", "DejaVuSe", "STIXGeneral", "cmb10", "cmr10", "cmss10", "cmtt10")
_Draw = Callable[[str, Random, str], Image.Image]
"""Makes a picture of a class; of a photograph from its `left`, or from its `right` for testing."""


def draw_shapes(folder: Path, *, classes: int = 6, count: int = 20, new: bool = False) -> Path:
    """Outlines, dark on light in many colours, of any place, size and turn, 60x50 pixels."""
    return _fill(folder, SHAPES[:classes], _shape, count, new=new)


def draw_letters(folder: Path, *, classes: int = 20, count: int = 20, new: bool = False) -> Path:
    """Small letters in matplotlib's fonts, dark on light, 40x40 pixels, grey."""
    return _fill(folder, tuple(LETTERS[:classes]), _letter, count, new=new)


def crop_photographs(folder: Path, *, classes: int = 8, count: int = 20, new: bool = False) -> Path:
    """Squares of any size and turn of one photograph for each class, 96x96 pixels.

    What is held out or new comes from the right third of the photograph, other pictures from the
    left two, so that they do not overlap.
    """
    return _fill(folder, PHOTOGRAPHS[:classes], _crop, count, new=new)


def _fill(folder: Path, names: Sequence[str], draw: _Draw, count: int, *, new: bool) -> Path:
    for name in names:
        own = folder / Path(name).stem
        own.mkdir(parents=True)
        files = [own / f"{number:02}.png" for number in range(count)]
        places = [f"{own.name}/{file.name}" for file in files]
        for file, held_out in zip(files, held_out_mask(places), strict=True):
            random = Random(f"{new}/{name}/{file.name}")  # noqa: S311  seeded, no secret
            draw(name, random, "right" if new or held_out else "left").save(file)
    return folder


def _shape(name: str, random: Random, _: str) -> Image.Image:
    background, ink = _two_colours(random)
    picture = Image.new("RGB", (240, 200), background)
    size, turn = random.uniform(45, 75), random.uniform(-0.3, 0.3)
    x, y = random.uniform(size, 240 - size), random.uniform(size, 200 - size)
    for line in _outline(name):
        places = [
            (
                x + size * (right * math.cos(turn) - down * math.sin(turn)),
                y + size * (right * math.sin(turn) + down * math.cos(turn)),
            )
            for right, down in line
        ]
        ImageDraw.Draw(picture).line(places, ink, width=random.randint(10, 18), joint="curve")
    return picture.resize((60, 50), Image.Resampling.BOX)


def _outline(name: str) -> list[list[tuple[float, float]]]:
    """Lines within -1 to 1, right and down."""
    corners = {"square": 4, "triangle": 3, "ring": 40}
    if name in corners:
        count = corners[name]
        start = math.pi / 4 if name == "square" else -math.pi / 2
        return [[_on_circle(start + 2 * math.pi * one / count) for one in range(count + 1)]]
    if name == "star":
        return [[_on_circle(4 * math.pi * one / 5 - math.pi / 2) for one in range(6)]]
    if name == "wave":
        return [[(one / 10 - 1, 0.5 * math.sin(one * math.pi / 5)) for one in range(21)]]
    return [[(-1, 0), (1, 0)], [(0, -1), (0, 1)]]


def _on_circle(angle: float) -> tuple[float, float]:
    return math.cos(angle), math.sin(angle)


def _two_colours(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Paper and pen."""
    return (
        tuple(random.randint(180, 255) for _ in range(3)),
        tuple(random.randint(0, 120) for _ in range(3)),
    )


def _letter(name: str, random: Random, _: str) -> Image.Image:
    picture = Image.new("L", (80, 80), random.randint(170, 255))
    font = ImageFont.truetype(random.choice(_fonts()), random.randint(44, 64))
    place = (40 + random.uniform(-6, 6), 40 + random.uniform(-6, 6))
    ImageDraw.Draw(picture).text(place, name, random.randint(0, 80), font, anchor="mm")
    return picture.resize((40, 40), Image.Resampling.BOX)


@cache
def _fonts() -> tuple[str, ...]:
    folder = Path(get_data_path()) / "fonts" / "ttf"
    files = [file for file in sorted(folder.glob("*.ttf")) if file.stem.startswith(_FONTS)]
    return tuple(str(file) for file in files if not file.stem.endswith("Display"))


def _crop(name: str, random: Random, part: str) -> Image.Image:
    photograph = _photograph(name)
    third = photograph.width // 3
    left, right = (2 * third, photograph.width) if part == "right" else (0, 2 * third)
    side = random.uniform(0.6, 1) * min(right - left, photograph.height)
    x = random.uniform(left + side / 2, right - side / 2)
    y = random.uniform(side / 2, photograph.height - side / 2)
    inner = side / 2 / 1.3  # so that a turned square stays within
    square = photograph.rotate(
        random.uniform(-15, 15), Image.Resampling.BICUBIC, center=(x, y)
    ).crop(tuple(round(at) for at in (x - inner, y - inner, x + inner, y + inner)))
    return square.resize((96, 96), Image.Resampling.LANCZOS)


@cache
def _photograph(name: str) -> Image.Image:
    spec = find_spec("skimage")
    assert spec
    assert spec.submodule_search_locations
    with Image.open(Path(spec.submodule_search_locations[0]) / "data" / name) as picture:
        return picture.convert("RGB")


if __name__ == "__main__":
    for make in (draw_shapes, draw_letters, crop_photographs):
        for ending in ("", "-new"):
            target = Path(sys.argv[1]) / f"{make.__name__.partition('_')[2]}{ending}"
            print(make(target, new=bool(ending)))
