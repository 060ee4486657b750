from __future__ import annotations

import numpy as np
import pytest

from model.preprocess.pixels import scale


@pytest.mark.parametrize("shape", [(3,), (1, 1, 1, 3), (1, 3, 1, 1)])
def test_scale_maps_bytes_to_the_unit_interval(shape: tuple[int, ...]) -> None:
    """0 becomes 0.0, 255 becomes 1.0, in float32 and in the shape that came."""
    images = scale(np.array([0, 51, 255], np.uint8).reshape(shape))
    assert (shape, np.float32) == (images.shape, images.dtype)
    np.testing.assert_allclose(images.ravel(), [0.0, 0.2, 1.0], atol=1e-7)
