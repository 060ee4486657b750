from __future__ import annotations

import numpy as np
import pytest

from model.views.neighbours import measure_distances
from training.analysis.neighbours import find_prototypes, fit_all, fit_whitening

D = 5


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def covariance(rng: np.random.Generator) -> np.ndarray:
    mixing = rng.standard_normal((D, D))
    return np.asarray(mixing @ mixing.T + 0.1 * np.eye(D))


def test_distances_are_mahalanobis_s(rng: np.random.Generator) -> None:
    """(x - y)^T C^-1 (x - y), with C the covariance of the poses."""
    poses = rng.multivariate_normal(np.zeros(D), covariance(rng), 4000).astype(np.float32)
    inverse = np.linalg.inv(np.cov(poses, rowvar=False, bias=True))
    whitening = fit_whitening(poses, np.cov(poses, rowvar=False, bias=True))
    found = measure_distances(poses[0], poses[:10], whitening)
    for pose, distance in zip(poses, found, strict=False):
        away = pose - poses[0]
        assert np.sqrt(away @ inverse @ away) == pytest.approx(distance, rel=0.02, abs=1e-9)


def test_a_class_without_poses_has_the_spread_within_others(rng: np.random.Generator) -> None:
    """However far apart these are."""
    labels = np.repeat([0, 1], 2000)
    poses = rng.multivariate_normal(np.zeros(D), covariance(rng), 4000) + 50 * labels[:, None]
    white = poses[labels == 0] @ fit_all(poses.astype(np.float32), labels, 3)[2]
    assert np.eye(D) == pytest.approx(np.cov(white, rowvar=False), abs=0.1)


def test_each_group_has_its_prototype(rng: np.random.Generator) -> None:
    """Three groups far apart, of different sizes: the largest comes first."""
    middles = np.array([[9, 0], [0, 9], [-9, -9]])
    sizes = [10, 30, 20]
    points = np.concatenate(
        [
            middle + rng.standard_normal((size, 2)) * 0.3
            for middle, size in zip(middles, sizes, strict=True)
        ]
    )
    rows, shares = find_prototypes(points, 3)
    assert [0.5, 1 / 3, 1 / 6] == pytest.approx(shares.tolist())
    for row, middle in zip(rows, middles[[1, 2, 0]], strict=True):
        assert np.linalg.norm(points[row] - middle) < 1
