from __future__ import annotations

import numpy as np
import pytest

from model.views.path import trace_path

D = 6


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_line_is_straight(rng: np.random.Generator) -> None:
    """However unevenly it is walked; all of its variance lies along one axis."""
    steps = np.array([0, 0.1, 1, 1.5, 4])
    found = trace_path(np.outer(steps, rng.standard_normal(D)) + 3)
    assert 1 == pytest.approx(found.straightness)
    assert [1, 0] == pytest.approx(found.explained.tolist(), abs=1e-9)


def test_a_half_circle_is_as_long_as_it_is() -> None:
    """Diameter over half the circumference, and two axes tell all."""
    angles = np.linspace(0, np.pi, 500)
    poses = np.zeros((500, D))
    poses[:, 1], poses[:, 4] = np.cos(angles), np.sin(angles)
    found = trace_path(poses)
    assert 2 / np.pi == pytest.approx(found.straightness, rel=1e-4)
    assert 1 == pytest.approx(found.explained.sum())


def test_a_pose_that_rests_is_no_error() -> None:
    """Nothing moved: straight, at the origin."""
    found = trace_path(np.ones((4, D)))
    assert 1 == found.straightness
    assert np.allclose(0, found.points)


def test_distances_in_a_plane_are_kept(rng: np.random.Generator) -> None:
    """Of a path that lies in one."""
    plane = rng.standard_normal((9, 2)) @ np.linalg.qr(rng.standard_normal((D, 2)))[0].T
    points = trace_path(plane).points
    expected = np.linalg.norm(np.diff(plane, axis=0), axis=1)
    assert np.allclose(expected, np.linalg.norm(np.diff(points, axis=0), axis=1))
