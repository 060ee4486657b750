"""Directions: what `perturb`, `sweep`, `decode` and `describe` make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model.bundle import Manifest
from model.errors import InvalidParameter
from model.measures import measures_of
from model.views import find_view
from model.views.describe import ReadValue, tell
from model.views.net import run
from model.views.sweep import SHARES
from tests.extras import make_direction
from tests.views.numpy_net import MANIFEST, NumpyNet
from tests.views.test_views import TOP, ask, prepared

RIGHT = make_direction(0, "right", dim=1, dims=2, std=20)
FITTED = replace(
    MANIFEST,
    directions=(
        RIGHT,
        make_direction(1, "down", dim=0, dims=2),
        make_direction(0, "age", dims=2, dim=0),
    ),
)


def fitted(manifest: Manifest = FITTED) -> NumpyNet:
    return NumpyNet(manifest)


def test_a_direction_moves_the_pose_by_its_unit() -> None:
    """Twelve units of 0.01, in the dimension of the direction."""
    answer = ask("perturb", TOP, net=fitted(), dim=None, direction="right", delta=12)
    np.testing.assert_allclose([0, 0.12], answer.perturbed_pose - answer.pose, atol=1e-6)
    assert ("right", None) == (answer.direction, answer.dim)
    assert (42, 54) == pytest.approx((answer.value.read, answer.value.asked))
    left, right = answer.perturbed_pose
    centre = (right - left) / (left + right)
    assert pytest.approx(centre - 0.5, abs=1e-6) == answer.value.measured
    assert {"dim"}.isdisjoint(answer.dict())


@pytest.mark.parametrize(
    ("parameters", "parameter"),
    [
        ({"direction": "slant", "delta": 1}, "direction"),
        ({"direction": "down", "delta": 1}, "direction"),
        ({"direction": "right", "delta": 121}, "delta"),
        ({"dim": 1, "delta": 1.5}, "delta"),
    ],
)
def test_what_a_pose_cannot_do_is_refused(parameters: dict[str, Any], parameter: str) -> None:
    """An unknown direction, one of another class, and moves out of all proportion."""
    with pytest.raises(InvalidParameter) as error:
        ask_plain("perturb", fitted(), **parameters)
    assert parameter == error.value.parameter


def test_a_sweep_shows_directions_where_there_are_any() -> None:
    """From end to end of the class; parameters of dimensions give the paper's figure."""
    net = fitted()
    answer = ask_plain("sweep", net)
    assert ("direction", []) == (answer.by, answer.dims)
    assert ["right", "age"] == [one.name for one in answer.directions]
    assert list(SHARES) == answer.deltas
    assert [11, 11] == list(map(len, answer.images))
    right = answer.directions[0]
    assert (2, 50) == pytest.approx((right.low, right.high)), "42 is above the class, -20 to 20"
    assert answer.pose[1] + 0.08 == pytest.approx(float(answer.images[0][-1][0, 0, -1]))
    assert answer.pose[1] - 0.4 == pytest.approx(float(answer.images[0][0][0, 0, -1]))
    assert "dimension" == ask_plain("sweep", net, by="dimension").by
    assert ([1], []) == (
        ask_plain("sweep", net, dims=[1]).dims,
        ask_plain("sweep", net, step=0.1).directions,
    )
    assert answer.png().startswith(b"\x89PNG")


def ask_plain(name: str, net: NumpyNet, **parameters: Any) -> Any:
    """The answer, without the parameters that other tests give."""
    view = find_view(name)
    query = view.query.model_validate(parameters)
    query.check(net.manifest)
    return run(view.ask(net, query, prepared(TOP)))


def test_an_image_is_described_in_words() -> None:
    """Readings of the class, with their errors and ranks, and a sentence."""
    answer = ask("describe", TOP, net=fitted())
    assert ["right", "age"] == [one.name for one in answer.readings]
    first = answer.readings[0]
    assert (42, "px", 1.5, 95) == (
        round(first.value),
        first.unit,
        first.mean_error,
        first.percentile,
    )
    assert "a top, 42.0 px right of the middle, age 82 px" == answer.sentence
    assert "second" not in answer.dict()


def test_both_digits_of_a_pair_are_described() -> None:
    """The most present one first; with a target that one alone."""
    pairs = fitted(replace(FITTED, preprocess="pair", mask_threshold=0.1))
    answer = ask("describe", TOP, net=pairs)
    assert ("top", "bottom") == (answer.class_name, answer.second.class_name)
    assert answer.second.sentence in answer.sentence
    assert ask("describe", TOP, net=pairs, target=1).second is None


def reading(name: str, value: float, percentile: float, unit: str = "px") -> ReadValue:
    return ReadValue(
        name=name, value=value, unit=unit, mean_error=0, percentile=percentile, low=0, high=1
    )


@pytest.mark.parametrize(
    ("readings", "sentence"),
    [
        (
            [reading("thickness", 1.94, 20), reading("slant", 12.3, 70, "degrees")],
            "a 5, thin (1.9 px, thinner than 80 % of fives), slanted 12 degrees to the right",
        ),
        ([reading("slant", -9, 50, "degrees")], "a 5, slanted 9 degrees to the left"),
        ([reading("height", 20.4, 95)], "a 5, tall (20 px, taller than 95 % of fives)"),
        ([reading("height", 18, 50), reading("down", 0.3, 95)], "a 5, ordinary for its class"),
        ([reading("down", -1.5, 30)], "a 5, 1.5 px above the middle"),
        ([reading("slant", -1, 85, "degrees")], "a 5, slanted 1 degree to the left"),
        (
            [reading("turn-sine", -0.5, 50, ""), reading("turn-cosine", 0, 50, "")],
            "a 5, turn 270 degrees",
        ),
        ([], "a 5"),
    ],
)
def test_the_sentence_tells_what_is_unusual(readings: Sequence[ReadValue], sentence: str) -> None:
    """Extremes of the class and clear slants, in words that are read once."""
    assert sentence == tell("5", readings, measures_of(MANIFEST))
