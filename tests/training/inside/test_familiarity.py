from __future__ import annotations

import numpy as np
import pytest

from model.familiarity import Ranks
from model.runtime import Runtime
from training.inside.familiarity import auc, examine, fit_familiarity, judge, roc


@pytest.fixture
def images() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.random((200, 1, 28, 28)) * (rng.random((200, 1, 28, 28)) < 0.2)).astype(np.float32)


def test_a_fitted_rule_knows_what_it_was_fitted_on(runtime: Runtime, images: np.ndarray) -> None:
    """99 of 100 pictures of the threshold's half reach it, and the tables are of the other half."""
    rule = fit_familiarity(runtime, images, pictures="noise")
    signs = examine(runtime, images)
    assert 0.99 == pytest.approx(np.mean(rule.rank(signs).score[100:] >= rule.threshold), abs=0.011)
    for sign, table in zip(signs, (rule.length, rule.margin, rule.error), strict=True):
        assert (sign[:100].min(), sign[:100].max()) == pytest.approx(
            (table[0], table[-1]), rel=1e-5
        )


def test_signs_are_read_from_the_longest_capsule_s_drawing(
    runtime: Runtime, images: np.ndarray
) -> None:
    """Picture by picture, without batches, they are the same."""
    signs = examine(runtime, images[:70])
    place = 66
    lengths, poses = runtime.encode(images[place : place + 1])
    label = lengths[0].argmax()
    drawn = runtime.decode(poses[:, label], np.array([label]))
    error = np.square(drawn - images[place]).sum() / (np.square(images[place]).sum() + 1)
    assert lengths.max() == pytest.approx(signs.length[place], abs=1e-5)
    assert error == pytest.approx(signs.error[place], rel=1e-4)


@pytest.mark.parametrize(
    ("higher", "lower", "expected"),
    [
        ([2, 3], [0, 1], 1.0),
        ([0, 1], [2, 3], 0.0),
        ([1, 1], [1, 1], 0.5),
        ([0, 2, 2], [1, 2], (0 + 0 + 1 + 0.5 + 1 + 0.5) / 6),
    ],
)
def test_auc_counts_pairs(higher: list[float], lower: list[float], expected: float) -> None:
    """Won pairs count one, ties a half."""
    found = auc(np.array(higher, float), np.array(lower, float))
    assert expected == pytest.approx(found)


def test_auc_is_the_area_under_the_roc_curve() -> None:
    """The trapezoids under the curve add up to the share of won pairs."""
    rng = np.random.default_rng(0)
    known, strangers = rng.integers(3, 9, 40) / 10, rng.integers(0, 7, 30) / 10
    x, y = np.array(roc(known, strangers)).T
    assert ((0, 0), (1, 1)) == ((x[0], y[0]), (x[-1], y[-1]))
    assert auc(known, strangers) == pytest.approx(np.trapezoid(y, x))


def test_a_verdict_counts_strangers_taken_for_known(runtime: Runtime, images: np.ndarray) -> None:
    """Those at the threshold are known, as the service has it."""
    rule = fit_familiarity(runtime, images, pictures="noise")
    high, low = np.full(4, rule.threshold), np.full(3, rule.threshold - 1e-3)
    scores = np.concatenate((high, low))
    verdict = judge(rule, Ranks(high, high, high), "noise", Ranks(scores, scores, scores))
    assert ("noise", 7, round(400 / 7, 2)) == (verdict.kind, verdict.images, verdict.known_percent)
