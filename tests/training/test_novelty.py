from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.runtime import Runtime
from model.views.novelty import find_lowest, rank
from tests.training.published import write_toys
from training.answers import NO_CLASS, Answers, answer_images
from training.data.datasets import DATASETS, Examples
from training.novelty import (
    answer_others,
    compare_kinds,
    find_features,
    fit_novelty,
    score_novelty,
)

COUNT = 8


def sparse_noise(runtime: Runtime, count: int) -> Answers:
    rng, shape = np.random.default_rng(1), (count, 1, 28, 28)
    images = (rng.random(shape) * (rng.random(shape) < 0.2)).astype(np.float32)
    return answer_images(runtime, Examples(images, np.full(count, NO_CLASS)))


@pytest.mark.parametrize(("count", "with_distances"), [(200, False), (4000, True)])
def test_a_fitted_rule_knows_what_it_was_fitted_on(
    runtime: Runtime, *, count: int, with_distances: bool
) -> None:
    """95 % of the images of the threshold reach it, and the tables are of the others.

    From 100 images no covariance of 160 numbers can be told.
    """
    noise, half = sparse_noise(runtime, count), count // 2
    parts = noise.at(slice(half)), noise.at(slice(half, None))
    rule = fit_novelty(runtime, *parts, described="noise")
    assert with_distances == (rule.gaussians is not None) == bool(rule.distance)
    features = find_features(runtime, noise, rule.gaussians)
    known = find_lowest(rank(rule, features))[half:] >= rule.threshold
    assert 0.95 == pytest.approx(np.mean(known), abs=0.011)
    for name, feature in features.items():
        table, extremes = getattr(rule, name), (feature[:half].min(), feature[:half].max())
        assert extremes == pytest.approx((table[0], table[-1]), rel=1e-4)


def test_only_images_that_were_not_learnt_are_compared(runtime: Runtime, data_dir: Path) -> None:
    """With them each kind has an area under the curve, and says of what; without them none."""
    images = sparse_noise(runtime, 200)
    parts = images.at(slice(100)), images.at(slice(100, None))
    rule = fit_novelty(runtime, *parts, described="noise")
    typical = score_novelty(runtime, images, rule)
    others = answer_others(runtime, data_dir)
    compared = compare_kinds(runtime, rule, others, typical, "200 images")
    assert {"200 images"} == {one["typical"] for one in compared.others}
    noise, *_ = compared.others
    ranks = score_novelty(runtime, others["noise"], rule)
    assert noise["auc"] == pytest.approx((typical[:, None] > ranks).mean(), abs=0.02)
    alone = compare_kinds(runtime, rule, others, None, "")
    assert not any({"auc", "typical"} & one.keys() for one in alone.others)


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of one other data set are, and no other's; and few images of each kind."""
    monkeypatch.setattr("training.novelty.COUNT", COUNT)
    monkeypatch.setitem(DATASETS, "toys", write_toys(tmp_path))
    return tmp_path


def test_every_kind_has_its_images(runtime: Runtime, data_dir: Path) -> None:
    """Shaped and scaled as the network wants them, no two letters alike; the same each time."""
    kinds, again = answer_others(runtime, data_dir), answer_others(runtime, data_dir)
    assert {"noise", "blanks", "letters", "digits (toys)"} == kinds.keys()
    for kind, answers in kinds.items():
        images = answers.images
        assert ((COUNT, 1, 28, 28), np.float32) == (images.shape, images.dtype)
        assert 0 <= images.min() <= images.max() <= 1
        assert np.array_equal(images, again[kind].images)
    assert COUNT == len({one.tobytes() for one in kinds["letters"].images})
    assert np.ptp(kinds["blanks"].images[0]) == 0
    assert kinds["letters"].images.sum(axis=(1, 2, 3)).min() > 20
