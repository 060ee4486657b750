from __future__ import annotations

import pytest

from tests.browser.hands import DIGITS, HANDS
from tests.browser.playground import Playground

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("digit", DIGITS)
def test_drawn_digits_are_read(digit: int, playground: Playground) -> None:
    """Whoever draws a digit, and in whichever of its usual forms, the page names it."""
    read = {}
    for place, (form, shape) in enumerate(DIGITS[digit].items()):
        for hand in list(HANDS)[place % 2 :: 2]:
            playground.draw(HANDS[hand].draw(shape))
            read[f"{form}, {hand}"] = playground.label
            playground.clear()
    misread = {drawing: label for drawing, label in read.items() if label != str(digit)}
    assert {} == misread
