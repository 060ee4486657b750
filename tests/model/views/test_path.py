from __future__ import annotations

import numpy as np
import pytest

from model.views.path import trace_path

D = 6


def test_a_half_circle_is_as_long_as_it_is() -> None:
    """Diameter over half the circumference, and two axes tell all."""
    angles = np.linspace(0, np.pi, 500)
    poses = np.zeros((500, D))
    poses[:, 1], poses[:, 4] = np.cos(angles), np.sin(angles)
    found = trace_path(poses)
    assert 2 / np.pi == pytest.approx(found.straightness, rel=1e-4)
    assert 1 == pytest.approx(found.explained.sum())
