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
    found = interpolate(*ends, 9)
    turns = [float(angles_deg(a[None], b)[0]) for a, b in pairwise(found)]
    assert turns == pytest.approx([turns[0]] * 8, rel=1e-3)
    assert float(angles_deg(ends[:1], ends[1])[0]) == pytest.approx(sum(turns), rel=1e-4)


def test_the_length_changes_linearly(ends: np.ndarray) -> None:
    """Also where the directions are far apart: a straight line would pass near zero."""
    lengths = np.linalg.norm(interpolate(*ends, 9), axis=1)
    expected = np.linspace(*np.linalg.norm(ends, axis=1), 9)
    assert expected.tolist() == pytest.approx(lengths.tolist(), rel=1e-5)


def test_parallel_poses_differ_in_length_alone() -> None:
    """No turn, and no division by the sine of zero."""
    pose = np.arange(1, 5, dtype=np.float32)
    expected = np.outer([1, 1.5, 2], pose)
    assert np.allclose(expected, interpolate(pose, 2 * pose, 3), atol=1e-5)


def test_opposite_poses_go_around() -> None:
    """Half a turn: the middle is as long, and at a right angle to both ends."""
    pose = np.array([0.6, 0, 0.8, 0], np.float32)
    middle = interpolate(pose, -pose, 3)[1]
    assert 1 == pytest.approx(float(np.linalg.norm(middle)))
    assert 0 == pytest.approx(float(middle @ pose), abs=1e-6)


def test_zero_has_no_direction() -> None:
    """It grows along the other pose; two zeros stay zero."""
    pose, zero = np.array([3, 4], np.float32), np.zeros(2, np.float32)
    assert np.allclose([[0, 0], [1.5, 2], [3, 4]], interpolate(zero, pose, 3))
    assert np.allclose([[3, 4], [1.5, 2], [0, 0]], interpolate(pose, zero, 3))
    assert np.allclose(0, interpolate(zero, zero, 3))
