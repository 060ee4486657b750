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
