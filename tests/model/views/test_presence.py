from __future__ import annotations

import numpy as np

from model.views.presence import most_present


def test_the_most_present_class_comes_first() -> None:
    """For one image or several; of equally present classes the lowest label."""
    presence = np.array([[0.1, 0.9, 0.3, 0.4], [0.9, 0.2, 0.1, 0.9]], np.float32)
    assert [[1, 3], [0, 3]] == most_present(presence, 2).tolist()
    assert [1, 3, 2] == most_present(presence[0], 3).tolist()
