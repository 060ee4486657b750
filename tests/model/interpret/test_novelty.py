from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from model.interpret.novelty import Features, NoveltyRule, measure_features, tabulate

RULE = NoveltyRule(
    quantiles=(0.0, 0.1, 0.5, 1.0),
    length=(0.4, 0.8, 0.9, 1.0),
    margin=(0.2, 0.7, 0.8, 0.95),
    error=(0.05, 0.1, 0.2, 0.6),
    threshold=0.02,
    images="drawn by hand",
)


def features(length: float = 0.95, margin: float = 0.9, error: float = 0.05) -> Features:
    return Features(*(np.array([value], np.float32) for value in (length, margin, error)))


def test_ranks_are_read_off_the_tables() -> None:
    """Between two quantiles a rank is interpolated; error counts from the other end."""
    ranks = RULE.rank(features(length=0.85, margin=0.7, error=0.4))
    assert [0.3, 0.1, 0.25] == pytest.approx([float(rank[0]) for rank in ranks])
    assert [0.1] == pytest.approx(ranks.score)


@pytest.mark.parametrize(
    "odd", [{"length": 0.3}, {"margin": 0.1}, {"error": 0.7}], ids=lambda odd: next(iter(odd))
)
def test_one_odd_feature_is_enough(odd: dict[str, float]) -> None:
    """Outside of all known images the score is zero, whatever the other features say."""
    assert [0] == RULE.rank(features(**odd)).score.tolist()


def test_features_are_those_of_the_longest_capsule() -> None:
    """Length, lead over the second, and what the drawing misses of the ink."""
    lengths = np.array([[0.1, 0.9, 0.3], [0.5, 0.2, 0.5]], np.float32)
    images = np.zeros((2, 1, 2, 2), np.float32)
    images[0, 0, 0] = 1
    drawn = np.zeros_like(images)
    drawn[0, 0, 0, 0] = 1
    drawn[1, 0, 1, 1] = 0.5
    found = measure_features(lengths, images, drawn)
    assert [0.9, 0.5] == pytest.approx(found.length.tolist())
    assert [0.6, 0.0] == pytest.approx(found.margin.tolist())
    assert [1 / 3, 0.25] == pytest.approx(found.error.tolist())


def test_errors_are_measured_over_all_channels() -> None:
    """Red missing and blue missing are missed alike."""
    images = np.ones((1, 3, 2, 2), np.float32)
    drawn = images.copy()
    drawn[:, 2] = 0
    found = measure_features(np.array([[0.9, 0.1]], np.float32), images, drawn)
    assert [4 / 13] == pytest.approx(found.error.tolist())


def test_a_rule_survives_json() -> None:
    """What the manifest holds is read back as it was."""
    rule = replace(RULE, others=({"kind": "noise", "images": 9, "auc": 1.0},))
    assert rule == NoveltyRule.from_dict(json.loads(json.dumps(asdict(rule))))


@pytest.mark.parametrize(
    "change",
    [{"length": (0.1, 0.2)}, {"error": (0.6, 0.2, 0.1, 0.05)}, {"threshold": 1.5}],
)
def test_broken_rules_are_refused(change: dict[str, Any]) -> None:
    """Tables of other sizes, that fall, or a threshold that no score has."""
    with pytest.raises(ValueError, match="novelty rule"):
        replace(RULE, **change)


def test_tables_are_quantiles() -> None:
    """Rounded, so that a manifest holds no noise digits."""
    assert (1.0, 3.0, 5.0) == tabulate(np.array([5.0, 1, 2, 3, 4]), [0, 0.5, 1])
    assert (0.333333,) == tabulate(np.array([1 / 3]), [0.5])
