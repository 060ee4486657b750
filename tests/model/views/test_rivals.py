from __future__ import annotations

import numpy as np
import pytest

from model.views.rivals import missed_share, rank_rivals


def test_a_perfect_drawing_misses_nothing() -> None:
    """And a black one misses nearly all of an image with ink."""
    image = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
    drawn = np.concatenate([image, image * 0])
    found = missed_share(image, drawn)
    assert 0 == found[0]
    ink = float(np.square(image).sum())
    assert ink / (ink + 1) == pytest.approx(float(found[1]))


def test_the_most_present_comes_first() -> None:
    """Of equally present classes the one that draws better."""
    presence = np.array([0.1, 0.9, 0.1, 0.5], np.float32)
    errors = np.array([0.8, 0.1, 0.4, 0.9], np.float32)
    assert [1, 3, 2, 0] == rank_rivals(presence, errors).tolist()
