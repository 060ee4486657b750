"""The calibration of a bundle: probabilities and sets of labels from presence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.bundle.confidence import Confidence

COARSE = Confidence(
    images="some",
    count=100,
    input="presence",
    temperature=4.0,
    method="temperature",
    coverages=(0.9, 0.99),
    thresholds=((0.5, 0.2),),
)
PRESENCE = np.array([[0.9, 0.1, 0.0], [0.6, 0.5, 0.1], [0.2, 0.2, 0.2]], np.float32)


def test_scores_are_a_softmax_of_scaled_presence() -> None:
    """A higher temperature is surer, and does not change the order."""
    expected = np.exp(4 * PRESENCE) / np.exp(4 * PRESENCE).sum(axis=1, keepdims=True)
    assert np.allclose(expected, COARSE.score_classes(PRESENCE))
    assert np.allclose(expected.max(axis=1), COARSE.find_probability(PRESENCE))
    surer = replace(COARSE, temperature=8.0).find_probability(PRESENCE)
    assert (surer[:2] > COARSE.find_probability(PRESENCE)[:2]).all()


def test_isotonic_regression_replaces_the_highest_score() -> None:
    """Between its values it is interpolated, and constant outside."""
    isotonic = replace(COARSE, method="isotonic", scores=(0.4, 0.8), probabilities=(0.5, 0.9))
    highest = COARSE.find_probability(PRESENCE)
    expected = np.interp(highest, (0.4, 0.8), (0.5, 0.9))
    assert np.allclose(expected, isotonic.find_probability(PRESENCE))
    assert 0.9 == isotonic.find_probability(PRESENCE)[0]


def test_rare_classes_have_thresholds_of_their_own() -> None:
    """The second class needs less than the others."""
    rare = replace(COARSE, thresholds=((0.5, 0.2), (0.01, 0.0), (0.5, 0.2)))
    assert rare.per_class
    assert [True, True, False] == rare.find_labels(PRESENCE, 0.9)[0].tolist()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"thresholds": ((0.5,),)}, "a threshold for each coverage"),
        ({"thresholds": ((0.2, 0.5),)}, "does not rise"),
        ({"thresholds": ((1.5, 0.5),)}, "less than or equal to 1"),
        ({"temperature": 0.0}, "greater than 0"),
        ({"method": "isotonic"}, "as many scores as values"),
        ({"method": "guess"}, "Input should be .temperature. or"),
    ],
)
def test_what_contradicts_itself_is_refused(fault: dict[str, object], message: str) -> None:
    """The message says what."""
    with pytest.raises(ValueError, match=message):
        replace(COARSE, **fault)  # type: ignore[arg-type]
