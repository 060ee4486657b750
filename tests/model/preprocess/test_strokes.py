from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from model.preprocess import prepare
from service.pictures import SAMPLES
from tests.model.preprocess.drawings import DIGIT, PAIR, centre_of_mass, draw_seven, draw_two


@pytest.mark.parametrize("size", [60, 200, 900])
def test_digit_is_laid_out_as_mnist_does(size: int) -> None:
    """The longer side of the strokes takes 20 pixels and their mass sits in the centre."""
    image = prepare(draw_seven(size), DIGIT).image[0]
    rows = np.flatnonzero(image.max(axis=1) > 0.25)
    assert pytest.approx(rows[-1] - rows[0] + 1, abs=1) == 20
    assert pytest.approx(centre_of_mass(image), abs=0.6) == (13.5, 13.5)


def test_box_tells_where_the_strokes_are() -> None:
    """The reported box is in the pixels of the picture as it came."""
    box = prepare(draw_seven(600), DIGIT).box
    assert box is not None
    assert (90, 76, 250, 366) == pytest.approx(tuple(box), abs=10)


def test_thin_strokes_are_thickened() -> None:
    """A hairline in a large picture still has MNIST's weight."""
    picture = Image.new("L", (1000, 1000), 255)
    ImageDraw.Draw(picture).line([(300, 200), (300, 800)], 0, width=8)
    image = prepare(picture, DIGIT).image[0]
    assert 1.5 < image[14].sum() < 4


def test_two_digits_take_23_of_36_pixels() -> None:
    """The longer side of the strokes' box does, and the middle of the box is the image's."""
    prepared = prepare(draw_two(), PAIR, rule="pair")
    ink = np.argwhere(prepared.image[0] > 0.5)
    low, high = ink.min(axis=0), ink.max(axis=0)
    assert ("pair", 23) == (prepared.fit, pytest.approx(high[0] - low[0] + 1, abs=1))
    assert pytest.approx([17.5, 17.5], abs=1) == ((low + high) / 2).tolist()
    assert prepared.box is not None
    assert pytest.approx((40, 20, 160, 170), abs=4) == tuple(prepared.box)


@pytest.mark.parametrize("grey", [0, 128, 255])
@pytest.mark.parametrize("size", [(1, 1), (3, 90), (200, 200)])
def test_blank_picture_gives_an_empty_image(grey: int, size: tuple[int, int]) -> None:
    """Where there are no strokes, nothing is invented."""
    prepared = prepare(Image.new("L", size, grey), DIGIT)
    assert prepared.box is None
    assert prepared.image.max() == 0


def test_a_picture_half_dark_and_half_light_is_read() -> None:
    """Its border has no level that is the background's; one half is the strokes."""
    halves = Image.fromarray(np.repeat([[0, 255]], 96, axis=1).repeat(192, axis=0).astype(np.uint8))
    assert prepare(halves, DIGIT).image.max() > 0.5


def test_strokes_that_fill_their_frame_are_found() -> None:
    """A picture cut close around a digit has hardly any background on its border."""
    one = Image.open(SAMPLES / "1.png")
    cut = one.crop(one.getbbox())
    enlarged = cut.resize((9 * cut.width, 9 * cut.height), Image.Resampling.BICUBIC)
    prepared = prepare(enlarged, DIGIT, polarity="light-on-dark")
    assert prepared.box is not None
    apart = np.abs(prepared.image[0] - np.asarray(one) / 255)
    assert apart.mean() < 0.05


def test_uneven_light_is_removed() -> None:
    """A gradient over the paper, as strong as the ink, leaves the digit as it was."""
    y, x = np.mgrid[0:1:200j, 0:1:200j]
    light = 0.45 + 0.35 * x + 0.2 * y * y
    lit = np.asarray(draw_seven(ink=100), np.float32) / 255 * light
    picture = Image.fromarray((255 * lit).astype(np.uint8))
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03
