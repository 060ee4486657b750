from __future__ import annotations

import numpy as np

from model.preprocess.pixels import scale


def test_scale_maps_bytes_to_the_unit_interval() -> None:
    """0 becomes 0.0, 255 becomes 1.0, and a channel axis appears."""
    images = scale(np.array([[[0, 51, 255]]], np.uint8))
    assert images.shape == (1, 1, 1, 3)
    np.testing.assert_allclose(images.ravel(), [0.0, 0.2, 1.0], atol=1e-7)
