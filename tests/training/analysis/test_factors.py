"""Dimensions are named after known factors, by poses and by drawings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.bundle.dimensions import PoseDimension
from training.analysis import factors
from training.analysis.factors import NAMES, Views, follow, name_by_factors
from training.data.assemblies import Factors, list_factors
from training.data.datasets import Examples

Doubles = NDArray[np.float64]
KNOWN = list_factors("train")
LEARNT = np.flatnonzero(KNOWN.instance < 5)
OTHERS = np.flatnonzero(KNOWN.instance == 5)


def draw(known: Factors, **_: Any) -> NDArray[np.uint8]:
    """Images of five pixels: sine and cosine of the azimuth, elevation, size and lamp."""
    turn = np.radians(known.azimuth)
    columns = (
        np.sin(turn),
        np.cos(turn),
        known.elevation / 20 - 2.5,
        5 * known.size - 5,
        known.lamp,
    )
    pixels = np.stack(columns, axis=1) - (0, 0, 0, 0, 2.5)
    return np.rint(127 + 40 * pixels).astype(np.uint8)[:, None, None]


class Linear:
    """A network whose poses are a linear map of five pixels, and which draws what it sees."""

    def __init__(self, weights: Doubles) -> None:
        self.weights = weights
        self.bundle = SimpleNamespace(manifest=SimpleNamespace(num_classes=5, height=1))

    def encode(self, images: NDArray[np.float32]) -> Any:
        """The same pose for each class."""
        poses = (images.reshape(-1, 5) - 0.5) @ self.weights.T
        return SimpleNamespace(poses=poses[:, None].repeat(5, axis=1))

    def decode(self, poses: NDArray[np.float32], labels: NDArray[np.int64]) -> Doubles:
        """The pixels (N, 1, 1, 5) that have these poses."""
        drawn = poses @ np.linalg.inv(self.weights).T + 0.5
        return np.asarray(drawn.reshape(len(labels), 1, 1, 5))


@pytest.fixture(autouse=True)
def rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any factors are drawn as five pixels."""
    monkeypatch.setattr(factors, "render_factors", draw)


def named(weights: Doubles) -> list[PoseDimension]:
    """The names of the dimensions of the first class."""
    sets = [Examples(draw(KNOWN.at(rows)), KNOWN.label[rows]) for rows in (LEARNT, OTHERS)]
    runtime: Any = Linear(weights)
    return [name for name in name_by_factors(runtime, *sets, KNOWN) if name.label == 0]


def test_dimensions_that_follow_and_draw_factors_are_named_after_them() -> None:
    """With the direction, where the factor has one; each pixel is a dimension of its own."""
    found = named(np.diag([1.0, 1.0, -1.0, 1.0, 1.0]))
    expected = [(0, "azimuth", 0), (1, "azimuth", 0), (2, "elevation", -1), (3, "size", 1)]
    assert [*expected, (4, "lamp", 0)] == [(one.dim, one.name, one.sign) for one in found]
    assert [1, 1, 1] == pytest.approx([one.strength for one in found[2:]], abs=1e-3)
    assert [0.5, 0.5] == pytest.approx([one.strength for one in found[:2]], abs=0.1)


def test_a_dimension_that_draws_another_factor_gets_no_name() -> None:
    """The third number is the elevation alone; moving it alone draws mostly another size."""
    weights = np.eye(5)
    weights[3, 2:4] = 1, 0.5
    views = [
        Views(draw(KNOWN.at(rows)).reshape(-1, 5) @ weights.T, KNOWN.at(rows))
        for rows in (LEARNT, OTHERS)
    ]
    assert "elevation" == follow(*views)[2]
    assert 2 not in {one.dim for one in named(weights)}


def test_a_dimension_follows_a_factor_on_both_sets_or_not_at_all() -> None:
    """Noise follows nothing, and what learnt objects alone show has no weight."""
    noise = np.random.default_rng(0).normal(size=(len(OTHERS), 1))
    size = KNOWN.size[:, None]
    learnt = Views(size[LEARNT], KNOWN.at(LEARNT))
    assert ["size"] == follow(learnt, Views(size[OTHERS], KNOWN.at(OTHERS)))
    assert [None] == follow(learnt, Views(noise, KNOWN.at(OTHERS)))


@pytest.mark.parametrize("name", NAMES)
def test_a_dimension_that_follows_too_little_has_no_factor(name: str) -> None:
    """30 % of the variance is the least."""
    values = getattr(KNOWN, name).astype(float)
    own = (values - values.mean()) / values.std()
    noise = np.random.default_rng(0).normal(size=len(own))
    for share, expected in ((0.5, name), (0.2, None)):
        poses = np.sqrt(share) * own + np.sqrt(1 - share) * noise
        views = Views(poses[:, None], KNOWN)
        assert [expected] == follow(views, views)
