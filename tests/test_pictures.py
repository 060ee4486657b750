from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageDraw, ImageOps

from tests.pictures import Picture, kinds, render

SEEDS = range(5)


@pytest.fixture(scope="module")
def seven() -> NDArray[np.uint8]:
    image = Image.new("L", (28, 28))
    ImageDraw.Draw(image).line(((7, 5), (20, 5), (11, 23)), fill=255, width=3)
    return np.array(image)


def draw(kind: str, digit: NDArray[np.uint8], seed: int) -> Picture:
    return render(kind, digit, np.random.default_rng(seed))


def view(picture: Picture) -> Image.Image:
    return Image.open(BytesIO(picture.content))


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_decodes_as_its_media_type(kind: str, seven: NDArray[np.uint8]) -> None:
    """Each picture opens, and is in the format that its media type says."""
    for seed in SEEDS:
        picture = draw(kind, seven, seed)
        image = view(picture)
        image.load()
        assert Image.MIME[image.format or ""] == picture.media_type


@pytest.mark.parametrize("kind", kinds())
def test_a_seed_decides_every_byte(kind: str, seven: NDArray[np.uint8]) -> None:
    """The same digit and seed give the same bytes."""
    assert draw(kind, seven, 7) == draw(kind, seven, 7)


@pytest.mark.parametrize("kind", sorted(set(kinds()) - {"native-png", "inverted-native-png"}))
def test_seeds_differ(kind: str, seven: NDArray[np.uint8]) -> None:
    """Another seed gives another picture, where the kind leaves anything to chance."""
    assert draw(kind, seven, 7) != draw(kind, seven, 8)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("native-png", "L"),
        ("inverted-native-png", "L"),
        ("small-off-centre", "L"),
        ("photo-jpeg", "RGB"),
        ("canvas-rgba", "RGBA"),
        ("grey16-png", "I;16"),
        ("palette-png", "P"),
        ("bilevel-png", "1"),
    ],
)
def test_a_kind_is_stored_in_its_own_mode(kind: str, mode: str, seven: NDArray[np.uint8]) -> None:
    """The pixels are kept as the kind's name promises."""
    assert view(draw(kind, seven, 0)).mode == mode


def test_native_picture_is_the_digit_itself(seven: NDArray[np.uint8]) -> None:
    """The native picture holds the digit's own pixels, and the inverted one their opposites."""
    np.testing.assert_array_equal(np.asarray(view(draw("native-png", seven, 0))), seven)
    np.testing.assert_array_equal(
        np.asarray(view(draw("inverted-native-png", seven, 0))), 255 - seven
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_exif_picture_needs_its_turn(seed: int, seven: NDArray[np.uint8]) -> None:
    """The seven's bar is at the top only when the orientation tag is obeyed."""
    stored = view(draw("exif-jpeg", seven, seed))
    assert stored.getexif()[ExifTags.Base.Orientation] in {3, 6, 8}
    assert has_bar_on_top(ImageOps.exif_transpose(stored))
    assert not has_bar_on_top(stored)


def has_bar_on_top(image: Image.Image) -> bool:
    ink = np.asarray(image.convert("L")) < 128
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    box = ink[rows[0] : rows[-1], columns[0] : columns[-1]]
    height, width = box.shape
    return height > width and bool(box[: height // 10].mean() > 0.8)


@pytest.mark.parametrize("seed", SEEDS)
def test_canvas_background_is_transparent(seed: int, seven: NDArray[np.uint8]) -> None:
    """Only strokes are opaque: most of a canvas, its corners included, has no alpha."""
    alpha = np.asarray(view(draw("canvas-rgba", seven, seed)))[..., 3]
    assert (alpha == 0).mean() > 0.5
    assert not alpha[[0, 0, -1, -1], [0, -1, 0, -1]].any()
    assert alpha.max() == 255


@pytest.mark.parametrize("seed", SEEDS)
def test_second_gif_frame_differs(seed: int, seven: NDArray[np.uint8]) -> None:
    """The digit is in the first frame only."""
    image = view(draw("gif", seven, seed))
    first = np.asarray(image.convert("RGB"), np.int16)
    image.seek(1)
    second = np.asarray(image.convert("RGB"), np.int16)
    assert (np.abs(first - second).max(axis=2) > 64).mean() > 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_photo_is_large_and_dark_on_light(seed: int, seven: NDArray[np.uint8]) -> None:
    """A photo's background is much lighter than its strokes, and covers most of a large picture."""
    grey = np.asarray(view(draw("photo-jpeg", seven, seed)).convert("L"), np.float32)
    assert min(grey.shape) >= 300
    assert max(grey.shape) <= 1600
    assert np.median(grey) - np.percentile(grey, 0.5) > 60
