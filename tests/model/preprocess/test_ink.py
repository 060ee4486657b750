from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from model.preprocess import prepare
from service.pictures import SAMPLES
from tests.model.preprocess.drawings import DIGIT, draw_seven


@pytest.mark.parametrize("grey", [0, 128, 255])
@pytest.mark.parametrize("size", [(1, 1), (3, 90), (200, 200)])
def test_blank_picture_gives_an_empty_image(grey: int, size: tuple[int, int]) -> None:
    """Where there are no strokes, nothing is invented."""
    prepared = prepare(Image.new("L", size, grey), DIGIT)
    assert prepared.box is None
    assert prepared.image.max() == 0


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
