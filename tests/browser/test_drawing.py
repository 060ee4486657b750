from __future__ import annotations

import pytest

from tests.browser.hands import DIGITS
from tests.browser.playground import Playground

pytestmark = pytest.mark.browser


def test_drawn_digits_are_read(playground: Playground) -> None:
    """Each digit that is drawn with the mouse is named."""
    for digit, shape in DIGITS.items():
        playground.draw(shape)
        assert str(digit) == playground.label
        playground.clear()
