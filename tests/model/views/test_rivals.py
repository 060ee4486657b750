from __future__ import annotations

import numpy as np
import pytest

from model.views.rivals import missed_share


def test_a_perfect_drawing_misses_nothing() -> None:
    """And a black one misses nearly all of an image with ink."""
    image = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
    drawn = np.concatenate([image, image * 0])
    found = missed_share(image, drawn)
    assert 0 == found[0]
    ink = float(np.square(image).sum())
    assert ink / (ink + 1) == pytest.approx(float(found[1]))
