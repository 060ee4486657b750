"""Photographs: cropped to the network's shape and scaled, their pixels as they are."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from model.bundle import PreprocessRule
from model.errors import UnreadablePicture
from model.preprocess import crop, prepare
from tests.model.preprocess.drawings import DIGIT

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
    image = crop(picture, channels, 24, 32)
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
