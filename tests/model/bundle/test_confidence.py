"""The calibration of a bundle: probabilities and sets of labels from presence."""

from __future__ import annotations

from dataclasses import replace

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
