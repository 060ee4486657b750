from __future__ import annotations

from typing import Any

import pytest

from model.bundle.directions import summarise_directions
from tests.directions import make_direction


@pytest.mark.parametrize(
    ("quality", "offered"),
    [
        ({}, True),
        ({"got": 0.8, "same_way": 0.95, "largest_other": 0.3}, True),
        ({"got": 0.79}, False),
        ({"got": 1.21}, False),
        ({"same_way": 0.94}, False),
        ({"largest_other": 0.31}, False),
    ],
)
def test_only_good_directions_are_offered(quality: dict[str, Any], *, offered: bool) -> None:
    """Each of the three limits refuses alone."""
    assert offered == make_direction(7, **quality).offered


def test_a_summary_has_what_is_offered_by_name() -> None:
    """The range is that of all classes, the quality their mean, the largest other the worst."""
    refused = make_direction(9, got=2)
    first, second = make_direction(7, got=0.9, largest_other=0.2), make_direction(8)
    (slant,) = summarise_directions([first, second, refused])
    assert ("slant", "degrees", [7, 8]) == (slant["name"], slant["unit"], slant["labels"])
    assert (-20, 20, 0.95, 0.2) == tuple(
        slant[key] for key in ("low", "high", "got", "largest_other")
    )
