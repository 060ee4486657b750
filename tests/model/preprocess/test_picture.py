from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from model.bundle import PreprocessRule
from model.errors import InvalidParameter, UnreadablePicture
from model.preprocess import prepare, scale, scale_picture
from tests.model.preprocess.drawings import DIGIT, draw_seven


@pytest.fixture
def native() -> NDArray[np.uint8]:
    """A 28x28 picture of a seven, light on dark, off-centre."""
    return np.asarray(draw_seven(28, ink=200, background=0))


def test_native_picture_passes_untouched(native: NDArray[np.uint8]) -> None:
    """A picture of the network's size keeps every pixel, centred or not."""
    prepared = prepare(Image.fromarray(native), DIGIT)
    assert prepared.fit == "none"
    np.testing.assert_array_equal(prepared.image, scale(native[None]))


def test_dark_native_picture_is_inverted(native: NDArray[np.uint8]) -> None:
    """Dark strokes on light are found by the border and turned over; a given polarity wins."""
    prepared = prepare(Image.fromarray(255 - native), DIGIT)
    assert prepared.polarity == "dark-on-light"
    np.testing.assert_allclose(prepared.image, scale(native[None]), atol=1e-6)
    given = prepare(Image.fromarray(native), DIGIT, polarity="dark-on-light")
    np.testing.assert_allclose(given.image, 1 - scale(native[None]), atol=1e-6)


def test_a_network_of_clothes_gets_the_whole_picture() -> None:
    """Its rule looks for no strokes: `auto` stretches pictures of another size."""
    picture = draw_seven(280)
    by_rule, asked = prepare(picture, DIGIT, rule="stretch"), prepare(picture, DIGIT, fit="stretch")
    assert "stretch" == by_rule.fit
    np.testing.assert_array_equal(asked.image, by_rule.image)


def test_fit_none_refuses_another_size() -> None:
    """The message names both sizes."""
    with pytest.raises(InvalidParameter, match="28x28 pixels, not 200x200"):
        prepare(draw_seven(), DIGIT, fit="none")


PICTURES = {
    "dark on light": draw_seven(),
    "light on dark": draw_seven(ink=255, background=0),
    "faint": draw_seven(ink=150, background=190),
    "colour": draw_seven(mode="RGB", ink=(30, 40, 160), background=(250, 245, 230)),
    "transparent, dark ink": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), background=(0, 0, 0, 0)),
    "transparent, light ink": draw_seven(
        mode="RGBA", ink=(255, 255, 255, 255), background=(0, 0, 0, 0)
    ),
    "opaque alpha": draw_seven(mode="RGBA", ink=(0, 0, 0, 255), background=(255, 255, 255, 255)),
    "grey and alpha": draw_seven(mode="LA", ink=(255, 255), background=(0, 0)),
    "grey and alpha, multiplied": draw_seven(mode="LA", ink=(255, 255), background=(0, 0)).convert(
        "La"
    ),
    "Lab": Image.merge("LAB", (draw_seven(), *[Image.new("L", (200, 200), 128)] * 2)),
    "palette": draw_seven(mode="RGB", ink=(0, 0, 90), background=(255, 255, 255)).quantize(8),
    "one bit": draw_seven().convert("1"),
    "16 bit": Image.fromarray(np.asarray(draw_seven(), np.uint16) * 257),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_every_mode_gives_the_same_digit(picture: Image.Image) -> None:
    """Mode, polarity and contrast do not change what the network sees."""
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


def test_palette_transparency_counts() -> None:
    """A GIF's transparent colour is background, whatever its red, green and blue."""
    picture = draw_seven(mode="P", ink=1, background=0)
    picture.putpalette([10, 10, 10, 0, 0, 0])
    picture.info["transparency"] = 0
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


@pytest.mark.parametrize(("ink", "background"), [(0, 255), (255, 0)], ids=["dark ink", "light ink"])
def test_paper_with_a_clear_margin_is_paper(ink: int, background: int) -> None:
    """A window's picture or a cut-out scan is not taken for one large stroke."""
    paper = draw_seven(mode="LA", ink=(ink, 255), background=(background, 255))
    picture = Image.new("LA", (260, 240), (0, 0))
    picture.paste(paper, (30, 20))
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


def test_a_network_of_any_size_takes_up_to_four_times_its_pixels() -> None:
    """And as they are; one more column is too many."""
    image = np.zeros((56, 56), np.uint8)
    image[20:30, 20:30] = 255
    prepared = prepare(Image.fromarray(image), DIGIT, fit="none", any_size=True)
    assert np.array_equal(scale(image[None]), prepared.image)
    with pytest.raises(InvalidParameter, match="up to 4 times as many, not 57x56"):
        prepare(Image.new("L", (57, 56)), DIGIT, fit="none", any_size=True)


COLOUR = (3, 24, 32)


@pytest.fixture
def thirds() -> Image.Image:
    """A wide picture: red to the left, green in the middle, blue to the right."""
    picture = Image.new("RGB", (120, 30), (0, 255, 0))
    picture.paste((255, 0, 0), (0, 0, 40, 30))
    picture.paste((0, 0, 255), (80, 0, 120, 30))
    return picture


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
    image = scale_picture(picture, channels, 24, 32, middle=True)
    assert (channels, 24, 32) == image.shape
    assert 0 <= image.min() < 0.1
    assert 0.9 < image.max() <= 1


def test_transparency_is_laid_on_white() -> None:
    """A cut-out photograph has a white background."""
    picture = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    np.testing.assert_array_equal(np.ones(COLOUR), prepare(picture, COLOUR, rule="crop").image)


@pytest.mark.parametrize("level", [-1, 65_536])
@pytest.mark.parametrize("rule", ["crop", "digit"])
def test_levels_beyond_sixteen_bits_are_refused(level: int, rule: PreprocessRule) -> None:
    """Nobody knows their white: they are not clipped without a word."""
    picture = Image.fromarray(np.full((28, 28), level, np.int32))
    with pytest.raises(UnreadablePicture, match="from 0 to 65,535"):
        prepare(picture, DIGIT, rule=rule)


def test_a_photograph_stored_on_its_side_is_turned(thirds: Image.Image) -> None:
    """Its orientation tag is obeyed before the middle is looked for."""
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # the viewer turns it a quarter clockwise
    thirds.save(file, "PNG", exif=exif)
    image = prepare(Image.open(file), (3, 120, 30), rule="crop").image
    assert [0, 1, 2] == [int(image[:, row, 15].argmax()) for row in (10, 60, 110)]
