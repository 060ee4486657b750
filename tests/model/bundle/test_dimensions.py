from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest

from model.bundle import Bundle
from model.bundle.dimensions import (
    DIRECTED,
    Deformation,
    DimensionName,
    Factor,
    PoseDimension,
)
from service.settings import Settings


@pytest.mark.parametrize(
    ("name", "sign", "expected"),
    [
        ("thickness", 1, "thicker"),
        ("thickness", -1, "thinner"),
        ("slant", -1, "leans left"),
        ("vertical shift", 1, "moves down"),
        ("elevation", 1, "seen from higher"),
        ("elevation", -1, "seen from lower"),
        ("size", -1, "smaller"),
        ("azimuth", 0, "turns the object"),
        ("lamp", 0, "moves the light"),
        ("localised", 0, "a localised change"),
        ("none", 0, ""),
    ],
)
def test_the_effect_says_what_growing_does(name: Any, sign: int, expected: str) -> None:
    """Name and sign in words."""
    assert expected == PoseDimension(3, 4, name, sign, 0.5 if sign else 0).effect


def test_deformations_and_factors_are_names() -> None:
    """Where the change only lies in some part, or anywhere, the dimension has none."""
    names: tuple[Any, ...] = get_args(DimensionName)
    signs = {name: int(name in DIRECTED) for name in names}
    named = [name for name in names if PoseDimension(3, 4, name, signs[name]).is_named]
    assert [*get_args(Deformation), *get_args(Factor)] == named


@pytest.mark.parametrize(
    "values",
    [
        {"name": "loop"},
        {"name": "slant"},
        {"name": "slant", "sign": 2},
        {"name": "none", "sign": 1},
        {"name": "azimuth", "sign": 1},
        {"name": "size"},
        {"name": "slant", "sign": 1, "strength": 1.5},
        {"name": "slant", "sign": 1, "dim": -1},
    ],
)
def test_contradictions_are_refused(values: dict[str, Any]) -> None:
    """A manifest with such an entry is not read."""
    with pytest.raises(ValueError, match=r"(?i)pose ?dimension"):
        PoseDimension(**{"label": 3, "dim": 4, **values})


def test_the_bundle_of_objects_has_a_dimension_of_each_factor() -> None:
    """One turns the object by itself, as docs/explanation/views.md says."""
    manifest = Bundle.open(Settings().bundles / "assemblies").manifest
    counts = Counter(dimension.name for dimension in manifest.pose_dimensions)
    assert all(counts[factor] for factor in get_args(Factor))
    assert 1 == counts["azimuth"]
