from __future__ import annotations

import io

import numpy as np
from PIL import Image

from model.preprocess import prepare
from tests.model.preprocess.drawings import DIGIT, draw_seven


def test_exif_orientation_is_obeyed() -> None:
    """A picture stored on its side is seen as its tag says."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer turns it a quarter clockwise
    draw_seven().transpose(Image.Transpose.ROTATE_90).save(file, "JPEG", exif=exif, quality=95)
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(Image.open(file), DIGIT).image - expected).mean() < 0.03
