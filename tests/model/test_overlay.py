from __future__ import annotations

import numpy as np
import pytest

from model.overlay import overlay


@pytest.mark.parametrize("dy", range(-8, 9))
@pytest.mark.parametrize("dx", [-8, -3, 0, 5, 8])
def test_the_second_digit_lies_where_it_was_asked_for(dx: int, dy: int) -> None:
    """However far apart, both lie whole within the picture."""
    first, second = np.zeros((2, 1, 28, 28), np.float32)
    first[0, 0, 0] = first[0, -1, -1] = 0.25
    second[0, 0, 0] = second[0, -1, -1] = 0.5
    (image,) = overlay(first, second, dx=dx, dy=dy)
    corner = np.argwhere(image == 0.25).min(axis=0) if (dx or dy) else np.array([4, 4])
    other = np.argwhere(image >= 0.5).min(axis=0)
    assert (36, 36) == image.shape
    assert [dy, dx] == (other - corner).tolist()
    assert pytest.approx(1.5) == float(image.sum())
