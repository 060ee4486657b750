from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from model.preprocess import PreprocessError, fit_strokes, illumination, prepare, scale

Floats = NDArray[np.float32]


def draw_seven(size: int = 200, *, ink: Any = 0, ground: Any = 255, mode: str = "L") -> Image.Image:
    """A seven in the upper left quarter of a square picture."""
    picture = Image.new(mode, (size, size), ground)
    path = [(0.15 * size, 0.15 * size), (0.4 * size, 0.15 * size), (0.25 * size, 0.6 * size)]
    ImageDraw.Draw(picture).line(path, ink, width=size // 20, joint="curve")
    return picture


def centre_of_mass(image: Floats) -> tuple[float, float]:
    rows, columns = np.indices(image.shape)
    return (float((rows * image).sum() / image.sum()), float((columns * image).sum() / image.sum()))


@pytest.fixture
def native() -> NDArray[np.uint8]:
    """A 28x28 picture of a seven, light on dark, off-centre."""
    return np.asarray(draw_seven(28, ink=200, ground=0))


def test_scale_maps_bytes_to_the_unit_interval() -> None:
    """0 becomes 0.0, 255 becomes 1.0, and a channel axis appears."""
    images = scale(np.array([[[0, 51, 255]]], np.uint8))
    assert images.shape == (1, 1, 1, 3)
    np.testing.assert_allclose(images.ravel(), [0.0, 0.2, 1.0], atol=1e-7)


def test_native_picture_passes_untouched(native: NDArray[np.uint8]) -> None:
    """A picture of the network's size keeps every pixel, centred or not."""
    prepared = prepare(Image.fromarray(native), 28)
    assert prepared.fit == "none"
    np.testing.assert_array_equal(prepared.image, scale(native[None])[0])


def test_dark_native_picture_is_inverted(native: NDArray[np.uint8]) -> None:
    """Dark strokes on light are found by the border and turned over."""
    prepared = prepare(Image.fromarray(255 - native), 28)
    assert prepared.polarity == "dark-on-light"
    np.testing.assert_allclose(prepared.image, scale(native[None])[0], atol=1e-6)


def test_given_polarity_wins(native: NDArray[np.uint8]) -> None:
    """An explicit polarity is obeyed where the border says otherwise."""
    prepared = prepare(Image.fromarray(native), 28, polarity="dark-on-light")
    np.testing.assert_allclose(prepared.image, 1 - scale(native[None])[0], atol=1e-6)


@pytest.mark.parametrize("size", [60, 200, 900])
def test_digit_is_laid_out_as_mnist_does(size: int) -> None:
    """The longer side of the strokes takes 20 pixels and their mass sits in the centre."""
    image = prepare(draw_seven(size), 28).image[0]
    rows = np.flatnonzero(image.max(axis=1) > 0.25)
    assert pytest.approx(rows[-1] - rows[0] + 1, abs=1) == 20
    assert pytest.approx(centre_of_mass(image), abs=0.6) == (13.5, 13.5)


def test_box_tells_where_the_strokes_are() -> None:
    """The reported box is in the pixels of the picture as it came."""
    box = prepare(draw_seven(600), 28).box
    assert box is not None
    assert (90, 76, 250, 366) == pytest.approx(tuple(box), abs=10)


def test_box_of_thin_strokes_lies_in_the_picture() -> None:
    """Thickening does not move the box that is reported."""
    picture = Image.new("L", (250, 250), 255)
    ImageDraw.Draw(picture).line([(60, 40), (140, 160)], 0, width=2)
    box = prepare(picture, 28).box
    assert box is not None
    assert (60, 40, 141, 161) == pytest.approx(tuple(box), abs=2)


PICTURES = {
    "dark on light": draw_seven(),
    "light on dark": draw_seven(ink=255, ground=0),
    "faint": draw_seven(ink=150, ground=190),
    "colour": draw_seven(mode="RGB", ink=(30, 40, 160), ground=(250, 245, 230)),
    "transparent, dark ink": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), ground=(0, 0, 0, 0)),
    "transparent, light ink": draw_seven(
        mode="RGBA", ink=(255, 255, 255, 255), ground=(0, 0, 0, 0)
    ),
    "opaque alpha": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), ground=(255, 255, 255, 255)),
    "grey and alpha": draw_seven(mode="LA", ink=(255, 255), ground=(0, 0)),
    "palette": draw_seven(mode="RGB", ink=(0, 0, 90), ground=(255, 255, 255)).quantize(8),
    "one bit": draw_seven().convert("1"),
    "16 bit": Image.fromarray(np.asarray(draw_seven(), np.uint16) * 257),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_every_mode_gives_the_same_digit(picture: Image.Image) -> None:
    """Mode, polarity and contrast do not change what the network sees."""
    expected = prepare(draw_seven(), 28).image
    assert np.abs(prepare(picture, 28).image - expected).mean() < 0.03


def test_palette_transparency_counts() -> None:
    """A GIF's transparent colour is ground, whatever its red, green and blue."""
    picture = draw_seven(mode="P", ink=1, ground=0)
    picture.putpalette([10, 10, 10, 0, 0, 0])
    picture.info["transparency"] = 0
    expected = prepare(draw_seven(), 28).image
    assert np.abs(prepare(picture, 28).image - expected).mean() < 0.03


def test_uneven_light_is_removed() -> None:
    """A gradient over the paper, as strong as the ink, leaves the digit as it was."""
    y, x = np.mgrid[0:1:200j, 0:1:200j]
    light = 0.45 + 0.35 * x + 0.2 * y * y
    lit = np.asarray(draw_seven(ink=100), np.float32) / 255 * light
    picture = Image.fromarray((255 * lit).astype(np.uint8))
    expected = prepare(draw_seven(), 28).image
    assert np.abs(prepare(picture, 28).image - expected).mean() < 0.03


def test_illumination_follows_a_quadratic_exactly() -> None:
    """A ground that is a quadratic surface is found to a thousandth, in spite of strokes."""
    y, x = np.mgrid[-1:1:48j, -1:1:48j].astype(np.float32)
    surface = 0.6 + 0.1 * x - 0.15 * y + 0.05 * x * y - 0.1 * x * x
    strokes = surface.copy()
    strokes[15:30, 20:24] = 0.05
    assert np.abs(illumination(strokes) - surface).max() < 1e-3


def test_exif_orientation_is_obeyed() -> None:
    """A picture stored on its side is seen as its tag says."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer turns it a quarter clockwise
    draw_seven().transpose(Image.Transpose.ROTATE_90).save(file, "JPEG", exif=exif, quality=95)
    expected = prepare(draw_seven(), 28).image
    assert np.abs(prepare(Image.open(file), 28).image - expected).mean() < 0.03


@pytest.mark.parametrize("grey", [0, 128, 255])
@pytest.mark.parametrize("size", [(1, 1), (3, 90), (200, 200)])
def test_blank_picture_gives_an_empty_image(grey: int, size: tuple[int, int]) -> None:
    """Where there are no strokes, nothing is invented."""
    prepared = prepare(Image.new("L", size, grey), 28)
    assert prepared.box is None
    assert prepared.image.max() == 0


def test_border_half_dark_and_half_light_is_no_error() -> None:
    """Where the ground cannot be told, the picture is still answered."""
    picture = Image.new("L", (300, 200), 0)
    picture.paste(255, (0, 0, 150, 200))
    assert (1, 28, 28) == prepare(picture, 28).image.shape


def test_noise_alone_gives_an_empty_image() -> None:
    """Sensor noise on blank paper is not taken for strokes."""
    noise = np.random.default_rng(0).normal(200, 6, (300, 300)).clip(0, 255).astype(np.uint8)
    assert prepare(Image.fromarray(noise), 28).box is None


def test_thin_strokes_are_thickened() -> None:
    """A hairline in a large picture still has MNIST's weight."""
    picture = Image.new("L", (1000, 1000), 255)
    ImageDraw.Draw(picture).line([(300, 200), (300, 800)], 0, width=8)
    image = prepare(picture, 28).image[0]
    assert 1.5 < image[14].sum() < 4


@pytest.mark.parametrize("size", [(28, 28), (280, 280), (56, 28)])
def test_stretch_takes_the_whole_picture(size: tuple[int, int]) -> None:
    """Stretching keeps the strokes' place in the picture."""
    picture = draw_seven(280).resize(size)
    prepared = prepare(picture, 28, fit="stretch")
    assert prepared.fit == "stretch"
    assert centre_of_mass(prepared.image[0])[1] < 10


def test_fit_none_refuses_another_size() -> None:
    """The message names both sizes."""
    with pytest.raises(PreprocessError, match="28x28 pixels, not 200x200"):
        prepare(draw_seven(), 28, fit="none")


def test_fit_digit_is_done_to_native_pictures_when_asked(native: NDArray[np.uint8]) -> None:
    """`fit=digit` centres a digit that came off-centre at the network's size."""
    image = prepare(Image.fromarray(native), 28, fit="digit").image[0]
    assert pytest.approx(centre_of_mass(image), abs=0.7) == (13.5, 13.5)


@pytest.mark.parametrize("size", [28, 36])
def test_result_has_the_networks_size(size: int) -> None:
    """Any network size works, in float32 from 0 to 1."""
    prepared = fit_strokes(np.asarray(draw_seven(), np.float32) / 255, size, "auto")
    assert ((1, size, size), np.float32) == (prepared.image.shape, prepared.image.dtype)
    assert 0 <= prepared.image.min() <= prepared.image.max() <= 1


def draw_two(size: int = 300) -> Image.Image:
    """Two crossing strokes, off-centre: 120 pixels wide and 150 high."""
    picture = Image.new("L", (size, size), 255)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((40, 100, 159, 119), fill=0)
    pen.rectangle((60, 20, 79, 169), fill=0)
    return picture


def test_two_digits_take_23_of_36_pixels() -> None:
    """The longer side of the strokes' box does, and the middle of the box is the image's."""
    prepared = prepare(draw_two(), 36, rule="pair")
    ink = np.argwhere(prepared.image[0] > 0.5)
    low, high = ink.min(axis=0), ink.max(axis=0)
    assert ("pair", 23) == (prepared.fit, pytest.approx(high[0] - low[0] + 1, abs=1))
    assert pytest.approx([17.5, 17.5], abs=1) == ((low + high) / 2).tolist()
    assert prepared.box is not None
    assert pytest.approx((40, 20, 160, 170), abs=4) == tuple(prepared.box)


def test_a_picture_of_two_digits_in_the_right_size_is_left_alone() -> None:
    """36x36 pictures pass untouched."""
    native = np.asarray(draw_two(300).resize((36, 36)))
    prepared = prepare(Image.fromarray(255 - native), 36, rule="pair")
    assert "none" == prepared.fit
    np.testing.assert_array_equal(scale(255 - native[None])[0], prepared.image)
