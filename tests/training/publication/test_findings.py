from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.bundle import Bundle
from model.dimensions import PoseDimension
from model.familiarity import Familiarity
from training.publication.findings import ROUTING_CURVE, WRONG, tell_findings

RULE = Familiarity(
    quantiles=(0.0, 1.0),
    length=(0.0, 1.0),
    margin=(0.0, 1.0),
    error=(0.0, 1.0),
    threshold=0.01,
    pictures="the last 5,000 training images, held out from training",
    strangers=({"kind": "noise", "images": 1000, "auc": 0.9876, "known_percent": 1.5},),
)


@pytest.fixture
def bundle(bundle_path: Path, tmp_path: Path) -> Bundle:
    """A manifest in an empty folder."""
    return Bundle(tmp_path, Bundle.open(bundle_path).manifest)


def test_where_nothing_was_found_nothing_is_told(bundle: Bundle) -> None:
    """A bundle that was not studied has a card without these sections."""
    assert "" == tell_findings(bundle)


def test_dimensions_are_told_in_words(bundle: Bundle) -> None:
    """A row for each dimension, a column for each class that was measured."""
    names = (
        PoseDimension(7, 0, "slant", -1, 0.625),
        PoseDimension(7, 1, "localised", 0, 0.7),
        PoseDimension(7, 2, "none"),
    )
    manifest = replace(bundle.manifest, pose_dimensions=names)
    told = tell_findings(replace(bundle, manifest=manifest)).splitlines()
    assert {"| | 7 |", "| 0 | leans left 0.62 |", "| 1 | *part* |", "| 2 | - |"} <= set(told)
    assert "1 of 3 dimensions have one." in " ".join(told)


def test_strangers_are_told_by_kind(bundle: Bundle) -> None:
    """Each kind's area under the curve and false welcomes, and on what the rule was fitted."""
    told = tell_findings(replace(bundle, manifest=replace(bundle.manifest, known=RULE)))
    assert "| noise | 1,000 | 0.9876 | 1.5 % |" in told.splitlines()
    assert RULE.pictures in told


def test_the_routing_curve_is_shown_where_it_was_drawn(bundle: Bundle) -> None:
    """The card links no picture that is not there."""
    (bundle.path / ROUTING_CURVE).touch()
    assert f"]({ROUTING_CURVE})" in tell_findings(bundle)


@pytest.mark.parametrize(
    ("errors", "told"), [(44, "All test images that"), (1234, "The first 100 of the 1,234 test")]
)
def test_wrong_answers_are_shown_where_they_were_drawn(
    bundle: Bundle, errors: int, told: str
) -> None:
    """The card says whether it shows all of them."""
    manifest = replace(bundle.manifest, metrics={"test_errors": errors})
    scored = replace(bundle, manifest=manifest)
    assert WRONG not in tell_findings(scored)
    (bundle.path / WRONG).touch()
    assert f"]({WRONG})" in tell_findings(scored)
    assert told in tell_findings(scored)
