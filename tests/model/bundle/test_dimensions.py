from __future__ import annotations

from typing import Any

import pytest

from model.bundle.dimensions import PoseDimension


@pytest.mark.parametrize(
    ("name", "sign", "expected"),
    [
        ("thickness", 1, "thicker"),
        ("thickness", -1, "thinner"),
        ("slant", -1, "leans left"),
        ("vertical shift", 1, "moves down"),
        ("localised", 0, "a localised change"),
        ("none", 0, ""),
    ],
)
def test_the_effect_says_what_growing_does(name: Any, sign: int, expected: str) -> None:
    """Name and sign in words."""
    assert expected == PoseDimension(3, 4, name, sign, 0.5 if sign else 0).effect


@pytest.mark.parametrize(
    "values",
    [
        {"name": "loop"},
        {"name": "slant"},
        {"name": "slant", "sign": 2},
        {"name": "none", "sign": 1},
        {"name": "slant", "sign": 1, "strength": 1.5},
        {"name": "slant", "sign": 1, "dim": -1},
    ],
)
def test_contradictions_are_refused(values: dict[str, Any]) -> None:
    """A manifest with such an entry is not read."""
    with pytest.raises(ValueError, match="pose dimension"):
        PoseDimension(**{"label": 3, "dim": 4, **values})
