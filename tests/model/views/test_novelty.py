from __future__ import annotations

import numpy as np
import pytest

from model.bundle.poses import NoveltyRule, PoseGaussians
from model.views.novelty import (
    find_lowest,
    measure_distances,
    measure_features,
    rank,
)

RULE = NoveltyRule(
    quantiles=(0.0, 0.1, 0.5, 1.0),
    length=(0.4, 0.8, 0.9, 1.0),
    margin=(0.2, 0.7, 0.8, 0.95),
    error=(0.05, 0.1, 0.2, 0.6),
    threshold=0.02,
    images="drawn by hand",
    distance=(1.0, 2.0, 3.0, 5.0),
)
GAUSSIANS = PoseGaussians(
    np.array([[0.9, 0, 0, 0], [0, 0, 0.9, 0]], np.float32), np.diag([1, 2, 3, 4]).astype(np.float16)
)
"""Of two classes with poses of two numbers."""


def features(
    length: float = 0.95, margin: float = 0.9, error: float = 0.05, distance: float = 1
) -> dict[str, np.ndarray]:
    values = {"length": length, "margin": margin, "error": error, "distance": distance}
    return {name: np.array([value], np.float32) for name, value in values.items()}


def test_ranks_are_read_off_the_tables() -> None:
    """Between two quantiles a rank is interpolated; error and distance count from the other end."""
    ranks = rank(RULE, features(length=0.85, margin=0.7, error=0.4, distance=2.5))
    assert [0.3, 0.1, 0.25, 0.7] == pytest.approx([float(rank[0]) for rank in ranks.values()])
    assert [0.1] == pytest.approx(find_lowest(ranks))


@pytest.mark.parametrize(
    "odd",
    [{"length": 0.3}, {"margin": 0.1}, {"error": 0.7}, {"distance": 6}],
    ids=lambda odd: next(iter(odd)),
)
def test_one_odd_feature_is_enough(odd: dict[str, float]) -> None:
    """Outside of all known images the score is zero, whatever the other features say."""
    assert [0] == find_lowest(rank(RULE, features(**odd))).tolist()


def test_features_are_those_of_the_longest_capsule() -> None:
    """Length, lead over the second, and what the drawing misses of the ink."""
    lengths = np.array([[0.1, 0.9, 0.3], [0.5, 0.2, 0.5]], np.float32)
    images = np.zeros((2, 1, 2, 2), np.float32)
    images[0, 0, 0] = 1
    drawn = np.zeros_like(images)
    drawn[0, 0, 0, 0] = 1
    drawn[1, 0, 1, 1] = 0.5
    found = measure_features(lengths, np.zeros((2, 3, 4), np.float32), images, drawn, None)
    assert [0.9, 0.5] == pytest.approx(found["length"].tolist())
    assert [0.6, 0.0] == pytest.approx(found["margin"].tolist())
    assert [1 / 3, 0.25] == pytest.approx(found["error"].tolist())


def test_distances_are_from_the_mean_of_the_most_present_class() -> None:
    """Each number counts as much as the whitening matrix says; those of other classes count too."""
    poses = np.array([[[0.9, 0], [0, 0]], [[0, 0], [0.8, 0]], [[0.3, 0.4], [0, 0.1]]], np.float32)
    presence = np.linalg.norm(poses, axis=2)
    expected = [0, 0.3, np.linalg.norm([0.6, 2 * 0.4, 0, 4 * 0.1])]
    assert expected == pytest.approx(measure_distances(GAUSSIANS, presence, poses), abs=1e-6)
