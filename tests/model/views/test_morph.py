from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from model.views.equivariance import angles_deg
from model.views.morph import interpolate


@pytest.fixture
def ends() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32)


def test_the_direction_turns_evenly(ends: np.ndarray) -> None:
    """From step to step by the same angle, and by no more than the ends are apart in all."""
    found = interpolate(ends[0], ends[1], 9)
    turns = [float(angles_deg(a[None], b)[0]) for a, b in pairwise(found)]
    assert turns == pytest.approx([turns[0]] * 8, rel=1e-3)
    assert float(angles_deg(ends[:1], ends[1])[0]) == pytest.approx(sum(turns), rel=1e-4)


def test_the_length_changes_linearly(ends: np.ndarray) -> None:
    """Also where the directions are far apart: a straight line would pass near zero."""
    lengths = np.linalg.norm(interpolate(ends[0], ends[1], 9), axis=1)
    start, stop = np.linalg.norm(ends, axis=1)
    expected = np.linspace(start, stop, 9)
    assert expected.tolist() == pytest.approx(lengths.tolist(), rel=1e-5)


def test_opposite_poses_go_around() -> None:
    """Half a turn: the middle is as long, and at a right angle to both ends."""
    pose = np.array([0.6, 0, 0.8, 0], np.float32)
    middle = interpolate(pose, -pose, 3)[1]
    assert 1 == pytest.approx(float(np.linalg.norm(middle)))
    assert 0 == pytest.approx(float(middle @ pose), abs=1e-6)
