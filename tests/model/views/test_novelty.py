from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.bundle.novelty import NoveltyRule, PoseGaussians
from model.views.novelty import (
    Features,
    flatten_poses,
    measure_distances,
    measure_features,
    rank,
    score_images,
    tabulate,
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
) -> Features:
    return Features(*(np.array([value], np.float32) for value in (length, margin, error, distance)))


def test_ranks_are_read_off_the_tables() -> None:
    """Between two quantiles a rank is interpolated; error and distance count from the other end."""
    ranks = rank(RULE, features(length=0.85, margin=0.7, error=0.4, distance=2.5))
    assert [0.3, 0.1, 0.25, 0.7] == pytest.approx([float(rank[0]) for rank in ranks])
    assert [0.1] == pytest.approx(ranks.lowest)


@pytest.mark.parametrize(
    "odd",
    [{"length": 0.3}, {"margin": 0.1}, {"error": 0.7}, {"distance": 6}],
    ids=lambda odd: next(iter(odd)),
)
def test_one_odd_feature_is_enough(odd: dict[str, float]) -> None:
    """Outside of all known images the score is zero, whatever the other features say."""
    assert [0] == rank(RULE, features(**odd)).lowest.tolist()


def test_features_are_those_of_the_longest_capsule() -> None:
    """Length, lead over the second, and what the drawing misses of the ink."""
    lengths = np.array([[0.1, 0.9, 0.3], [0.5, 0.2, 0.5]], np.float32)
    images = np.zeros((2, 1, 2, 2), np.float32)
    images[0, 0, 0] = 1
    drawn = np.zeros_like(images)
    drawn[0, 0, 0, 0] = 1
    drawn[1, 0, 1, 1] = 0.5
    found = measure_features(lengths, np.zeros((2, 3, 4), np.float32), images, drawn, None)
    assert [0.9, 0.5] == pytest.approx(found.length.tolist())
    assert [0.6, 0.0] == pytest.approx(found.margin.tolist())
    assert [1 / 3, 0.25] == pytest.approx(found.error.tolist())


def test_errors_are_measured_over_all_channels() -> None:
    """Red missing and blue missing are missed alike."""
    images = np.ones((1, 3, 2, 2), np.float32)
    drawn = images.copy()
    drawn[:, 2] = 0
    lengths, poses = np.array([[0.9, 0.1]], np.float32), np.zeros((1, 2, 4), np.float32)
    found = measure_features(lengths, poses, images, drawn, None)
    assert [4 / 13] == pytest.approx(found.error.tolist())


def test_distances_are_from_the_mean_of_the_most_present_class() -> None:
    """Each number counts as much as the whitening matrix says; those of other classes count too."""
    poses = np.array([[[0.9, 0], [0, 0]], [[0, 0], [0.8, 0]], [[0.3, 0.4], [0, 0.1]]], np.float32)
    presence = np.linalg.norm(poses, axis=2)
    expected = [0, 0.3, np.linalg.norm([0.6, 2 * 0.4, 0, 4 * 0.1])]
    assert expected == pytest.approx(measure_distances(GAUSSIANS, presence, poses), abs=1e-6)


def test_poses_are_as_long_as_their_classes_are_present() -> None:
    """Those of matrix capsules are scaled to it; one without a direction stays nothing."""
    poses = np.array([[[3, 4], [0, 0]]], np.float32)
    presence = np.array([[0.5, 0.2]], np.float32)
    assert [0.3, 0.4, 0, 0] == pytest.approx(flatten_poses(presence, poses)[0])


def test_a_rule_without_distances_judges_by_the_others() -> None:
    """As one of a network without poses; nothing is said of the distance."""
    rule = replace(RULE, distance=())
    (found,) = score_images(rule, features(length=0.85)._replace(distance=None))
    assert (False, 0.7, None) == (found.novel, found.score, found.distance_score)


def test_a_rank_at_the_threshold_is_not_novel() -> None:
    """The next lower one is."""
    rule = replace(RULE, threshold=0.1, margin=(0.25, 0.5, 0.75, 1.0))
    at, below = (score_images(rule, features(margin=value))[0] for value in (0.5, 0.499))
    assert (False, 0.9) == (at.novel, at.score)
    assert below.novel


def test_what_is_judged_is_rounded_to_six_digits() -> None:
    """Scores and the error."""
    (found,) = score_images(RULE, features(length=0.8123456, error=0.1234567))
    assert (0.850618, 0.123457) == (found.length_score, found.error)


def test_gaussians_survive_their_file(tmp_path: Path) -> None:
    """Both arrays come back as they were."""
    with (tmp_path / "novelty.npz").open("wb") as file:
        GAUSSIANS.save(file)
    found = PoseGaussians.load(tmp_path / "novelty.npz")
    assert np.array_equal(GAUSSIANS.means, found.means)
    assert np.array_equal(GAUSSIANS.whitening, found.whitening)


@pytest.mark.parametrize("arrays", [{"means": np.eye(2)}, None, "npy"])
def test_files_of_something_else_are_refused(arrays: Any, tmp_path: Path) -> None:
    """An archive without one of the arrays, no archive, and a lone array."""
    file = io.BytesIO(b"nothing")
    if isinstance(arrays, dict):
        np.savez(file, **arrays)
    elif arrays:
        np.save(file, np.eye(2))
    (tmp_path / "novelty.npz").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"it is no \.npz file of means, whitening"):
        PoseGaussians.load(tmp_path / "novelty.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": np.zeros((2, 3), np.float32)}, "do not go together"),
        ({"means": np.zeros(4, np.float32)}, "do not go together"),
        ({"whitening": np.full((4, 4), np.inf, np.float16)}, "not finite"),
    ],
)
def test_broken_gaussians_are_refused(change: dict[str, Any], message: str) -> None:
    """Arrays of other sizes, and numbers that are too large for 16 bits."""
    with pytest.raises(ValueError, match=message):
        replace(GAUSSIANS, **change)


def test_a_rule_survives_json() -> None:
    """What the manifest holds is read back as it was, and the Gaussians are none of it."""
    rule = replace(RULE, others=({"kind": "noise", "images": 9, "auc": 1.0},), gaussians=GAUSSIANS)
    assert rule == NoveltyRule.from_dict(json.loads(json.dumps(rule.to_dict())))


@pytest.mark.parametrize(
    "change",
    [
        {"length": (0.1, 0.2)},
        {"distance": (0.1, 0.2)},
        {"error": (0.6, 0.2, 0.1, 0.05)},
        {"error": (0.05, math.nan, 0.2, 0.6)},
        dict.fromkeys(("quantiles", "length", "margin", "error", "distance"), (0.5,)),
        {"threshold": 1.5},
        {"threshold": -0.1},
        {"threshold": math.nan},
        {"distance": (), "gaussians": GAUSSIANS},
    ],
)
def test_broken_rules_are_refused(change: dict[str, Any]) -> None:
    """Tables of other sizes or one value, that fall or are missing, a threshold no score has."""
    with pytest.raises(ValueError, match=r"(?i)novelty ?rule"):
        replace(RULE, **change)


def test_tables_are_quantiles() -> None:
    """Rounded, so that a manifest holds no noise digits."""
    assert (1.0, 3.0, 5.0) == tabulate(np.array([5.0, 1, 2, 3, 4]), [0, 0.5, 1])
    assert (0.333333,) == tabulate(np.array([1 / 3]), [0.5])
