from __future__ import annotations

import numpy as np
import pytest

from model.preprocess.polarity import border_polarity


@pytest.mark.parametrize("seed", range(20))
def test_the_median_of_the_border_decides(seed: int) -> None:
    """Any mixture of light and dark counts as numpy's median of the border says."""
    rng = np.random.default_rng(seed)
    levels = rng.choice([0, 126, 127, 128, 129, 255], (6, 6), p=rng.dirichlet(np.ones(6)))
    grey = np.asarray(levels / np.float32(255), np.float32)
    border = np.concatenate((grey[0], grey[-1], grey[:, 0], grey[:, -1]))
    expected = "light-on-dark" if np.median(border) <= 0.5 else "dark-on-light"
    assert expected == border_polarity(grey)


def test_the_middle_of_the_picture_does_not_count() -> None:
    """Light strokes that fill most of a picture leave it light on dark."""
    grey = np.zeros((28, 28), np.float32)
    grey[1:-1, 1:-1] = 1
    assert "light-on-dark" == border_polarity(grey)
