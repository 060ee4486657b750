from __future__ import annotations

import numpy as np
from PIL import Image

from model.preprocess import prepare
from model.preprocess.ground import illumination
from tests.model.preprocess.drawings import DIGIT, draw_seven


def test_illumination_follows_a_quadratic_exactly() -> None:
    """A ground that is a quadratic surface is found to a thousandth, in spite of strokes."""
    y, x = np.mgrid[-1:1:48j, -1:1:48j].astype(np.float32)
    surface = 0.6 + 0.1 * x - 0.15 * y + 0.05 * x * y - 0.1 * x * x
    strokes = surface.copy()
    strokes[15:30, 20:24] = 0.05
    assert np.abs(illumination(strokes) - surface).max() < 1e-3


def test_uneven_light_is_removed() -> None:
    """A gradient over the paper, as strong as the ink, leaves the digit as it was."""
    y, x = np.mgrid[0:1:200j, 0:1:200j]
    light = 0.45 + 0.35 * x + 0.2 * y * y
    lit = np.asarray(draw_seven(ink=100), np.float32) / 255 * light
    picture = Image.fromarray((255 * lit).astype(np.uint8))
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(picture, DIGIT).image - expected).mean() < 0.03


def test_border_half_dark_and_half_light_is_no_error() -> None:
    """Where the ground cannot be told, the picture is still answered."""
    picture = Image.new("L", (300, 200), 0)
    picture.paste(255, (0, 0, 150, 200))
    assert (1, 28, 28) == prepare(picture, DIGIT).image.shape
