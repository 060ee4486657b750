"""Photographs: cropped to the network's shape and scaled, their pixels as they are."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from model.bundle import PreprocessRule
from model.errors import UnreadablePicture
from model.preprocess import Fit, PreprocessError, crop, prepare
from tests.model.preprocess.drawings import DIGIT, draw_seven

COLOUR = (3, 24, 32)


@pytest.fixture
def thirds() -> Image.Image:
    """A wide picture: red to the left, green in the middle, blue to the right."""
    picture = Image.new("RGB", (120, 30), (0, 255, 0))
    picture.paste((255, 0, 0), (0, 0, 40, 30))
    picture.paste((0, 0, 255), (80, 0, 120, 30))
    return picture


def test_a_colour_picture_of_the_right_size_passes_untouched() -> None:
    """Channels come first, and every pixel stays, dark border or light."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    prepared = prepare(Image.fromarray(pixels), COLOUR, rule="crop")
    assert ("none", None, None) == (prepared.fit, prepared.polarity, prepared.box)
    np.testing.assert_allclose(prepared.image, pixels.transpose(2, 0, 1) / 255, atol=1e-6)


def test_the_middle_of_a_picture_is_taken(thirds: Image.Image) -> None:
    """The largest rectangle of the network's shape, of columns or of rows: green alone."""
    prepared = prepare(thirds, COLOUR, rule="crop")
    assert ("crop", COLOUR) == (prepared.fit, prepared.image.shape)
    high = crop(thirds.transpose(Image.Transpose.ROTATE_90), *COLOUR)
    for image in (prepared.image, high):
        np.testing.assert_array_equal([0, 1, 0], image.reshape(3, -1).mean(axis=1))


def test_stretch_takes_the_whole_picture(thirds: Image.Image) -> None:
    """Red, green and blue each keep a third of the columns."""
    prepared = prepare(thirds, COLOUR, rule="crop", fit="stretch")
    assert "stretch" == prepared.fit
    np.testing.assert_allclose([1 / 3] * 3, prepared.image.mean(axis=(1, 2)), atol=0.02)


def test_a_grey_network_sees_luminance(thirds: Image.Image) -> None:
    """One channel, weighed as Pillow does; polarity is not turned over."""
    image = crop(thirds, 1, 24, 32)
    assert (1, 24, 32) == image.shape
    assert pytest.approx(0.587, abs=0.01) == float(image.mean())


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "I;16", "F", "La", "LAB"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_gives_channels_in_the_unit_interval(mode: str, channels: int) -> None:
    """Grey pictures repeat themselves in red, green and blue."""
    grey = Image.linear_gradient("L").resize((128, 96))
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(grey, np.uint16) * 257)
    elif mode == "La":
        picture = grey.convert("LA").convert(mode)
    elif mode == "LAB":
        picture = Image.merge(mode, (grey, *[Image.new("L", grey.size, 128)] * 2))
    else:
        picture = grey.convert(mode)
    image = crop(picture, channels, 24, 32)
    assert (channels, 24, 32) == image.shape
    assert 0 <= image.min() < 0.1
    assert 0.9 < image.max() <= 1


def test_transparency_is_laid_on_white() -> None:
    """A cut-out photograph has a white background."""
    picture = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    np.testing.assert_array_equal(np.ones(COLOUR), prepare(picture, COLOUR, rule="crop").image)


def test_a_network_of_any_size_takes_a_larger_picture_as_it_is() -> None:
    """Its pixels are not scaled."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    picture = Image.fromarray(pixels)
    prepared = prepare(picture, COLOUR, rule="crop", fit="none", any_size=True)
    np.testing.assert_allclose(prepared.image, pixels.transpose(2, 0, 1) / 255, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True], ids=["width", "height"])
def test_pictures_of_every_size_are_cropped(turned: bool) -> None:  # noqa: FBT001
    """Sides of 1 to 400 pixels to sides of 1 to 64, and one colour stays that colour."""
    for side in range(1, 401):
        picture = Image.new("L", (400, side) if turned else (side, 400), 200)
        for target in range(1, 65):
            height, width = (target, 28) if turned else (28, target)
            image = crop(picture, 1, height, width)
            assert (1, height, width) == image.shape
            assert np.float32(200 / 255) == image.min() == image.max(), (side, target)


def test_small_pictures_are_enlarged() -> None:
    """Down to a single pixel."""
    image = crop(Image.new("RGB", (1, 1), (255, 0, 0)), *COLOUR)
    np.testing.assert_array_equal([1, 0, 0], image.reshape(3, -1).mean(axis=1))


def test_a_side_that_grows_is_interpolated() -> None:
    """Stretched from two rows to 24, black and white mix, although the columns shrink."""
    rows = np.repeat(np.array([[0], [255]], np.uint8), 64, axis=1)
    image = prepare(Image.fromarray(rows), (1, 24, 32), rule="crop", fit="stretch").image
    assert ((image > 0.1) & (image < 0.9)).any()


@pytest.mark.parametrize(("width", "height"), [(32, 48), (64, 24)])
def test_sides_that_shrink_or_stay_are_averaged(width: int, height: int) -> None:
    """Each pixel is the mean of its block, where one side has the network's size too."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width), np.uint8)
    image = prepare(Image.fromarray(pixels), (1, 24, 32), rule="crop", fit="stretch").image
    means = pixels.reshape(24, height // 24, 32, width // 32).mean(axis=(1, 3))
    np.testing.assert_allclose(image[0] * 255, means, atol=0.51)


def test_sixteen_bits_are_rounded_to_eight() -> None:
    """257 times a byte is that byte, and so is what is less than half of 257 away."""
    middle = 257 * np.arange(1, 255)
    for moved in (middle - 128, middle, middle + 128):
        picture = Image.fromarray(moved.astype(np.uint16)[None])
        image = crop(picture, 1, 1, 254)
        np.testing.assert_array_equal(np.arange(1, 255, dtype=np.float32) / 255, image[0, 0])


@pytest.mark.parametrize("level", [-1, 65_536])
@pytest.mark.parametrize("rule", ["crop", "digit"])
def test_levels_beyond_sixteen_bits_are_refused(level: int, rule: PreprocessRule) -> None:
    """Nobody knows their white: they are not clipped without a word."""
    picture = Image.fromarray(np.full((28, 28), level, np.int32))
    with pytest.raises(UnreadablePicture, match="from 0 to 65,535"):
        prepare(picture, DIGIT, rule=rule)


@pytest.mark.parametrize("fit", ["crop", "stretch"])
@pytest.mark.parametrize("rule", ["crop", "digit"])
def test_floats_are_0_to_255(fit: Fit, rule: PreprocessRule) -> None:
    """Whichever way they are fitted; others are clipped."""
    for level, expected in ((-5, 0), (200, 200 / 255), (300, 1)):
        picture = Image.new("F", (40, 40), level)
        prepared = prepare(picture, DIGIT, rule=rule, fit=fit, polarity="light-on-dark")
        np.testing.assert_allclose(prepared.image, expected, atol=1e-6)


def test_a_photograph_stored_on_its_side_is_turned(thirds: Image.Image) -> None:
    """Its orientation tag is obeyed before the middle is looked for."""
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # the viewer turns it a quarter clockwise
    thirds.save(file, "PNG", exif=exif)
    image = prepare(Image.open(file), (3, 120, 30), rule="crop").image
    assert [0, 1, 2] == [int(image[:, row, 15].argmax()) for row in (10, 60, 110)]


@pytest.mark.parametrize("fit", ["digit", "pair"])
def test_strokes_are_not_looked_for_in_photographs(fit: str, thirds: Image.Image) -> None:
    """The message says why."""
    with pytest.raises(PreprocessError, match=f"fit={fit} is for networks of digits"):
        prepare(thirds, COLOUR, rule="crop", fit=fit)  # type: ignore[arg-type]


def test_a_network_of_digits_crops_when_asked() -> None:
    """The middle of the picture is taken, and made light on dark as before."""
    prepared = prepare(draw_seven(), DIGIT, fit="crop")
    assert ("crop", "dark-on-light", DIGIT) == (
        prepared.fit,
        prepared.polarity,
        prepared.image.shape,
    )
    assert 0 == prepared.image[0, -1, -1]
