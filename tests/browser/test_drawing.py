from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.hands import DIGITS, HANDS
from tests.browser.playground import Playground, open_playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def playground(browser: Browser, service_url: str) -> Iterator[Playground]:
    """One page for all drawings."""
    with open_playground(browser, service_url) as playground:
        yield playground
        assert [] == playground.complaints
        assert [] == playground.foreign_requests


def misread(digit: int, hands: int, playground: Playground) -> dict[str, str]:
    """What the page takes a digit's forms for, each drawn by some hands, where it is wrong."""
    read = {}
    for place, (form, shape) in enumerate(DIGITS[digit].items()):
        for number in range(hands):
            hand = list(HANDS)[(digit + place + number) % len(HANDS)]
            playground.draw(HANDS[hand].draw(shape))
            read[f"{form}, {hand}"] = playground.label
            playground.clear()
    return {drawing: label for drawing, label in read.items() if label != str(digit)}


@pytest.mark.parametrize("digit", DIGITS)
def test_drawn_digits_are_read(digit: int, playground: Playground) -> None:
    """In whichever of its usual forms a digit is drawn, the page names it."""
    assert {} == misread(digit, 1, playground)


@pytest.mark.slow
@pytest.mark.parametrize("digit", DIGITS)
def test_drawn_digits_of_all_hands_are_read(digit: int, playground: Playground) -> None:
    """A digit is recognised in every hand that the tests draw."""
    assert {} == misread(digit, len(HANDS), playground)
