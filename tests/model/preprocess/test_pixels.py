from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from model.preprocess import prepare
from model.preprocess.pixels import median, scale
from tests.model.preprocess.drawings import DIGIT, draw_seven


@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3), (1, 3, 1, 1)])
def test_scale_maps_bytes_to_the_unit_interval(shape: tuple[int, ...]) -> None:
    """0 becomes 0.0, 255 becomes 1.0, in float32 and in the shape that came."""
    images = scale(np.array([0, 51, 255], np.uint8).reshape(shape))
    assert (shape, np.float32) == (images.shape, images.dtype)
    np.testing.assert_allclose(images.ravel(), [0.0, 0.2, 1.0], atol=1e-7)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 111, 112, 5000])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_median_equals_numpys(count: int, kind: type[np.floating]) -> None:
    """To the last bit, for odd and even numbers of values, some of them equal."""
    values = np.random.default_rng(count).integers(0, 300, count).astype(kind) / kind(255)
    assert float(np.median(values)) == median(values)


def test_exif_orientation_is_obeyed() -> None:
    """A picture stored on its side is seen as its tag says."""
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer turns it a quarter clockwise
    draw_seven().transpose(Image.Transpose.ROTATE_90).save(file, "JPEG", exif=exif, quality=95)
    expected = prepare(draw_seven(), DIGIT).image
    assert np.abs(prepare(Image.open(file), DIGIT).image - expected).mean() < 0.03
