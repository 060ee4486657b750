from __future__ import annotations

from typing import Any

import pytest

from tests.extras import make_direction


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
