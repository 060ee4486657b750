"""What must be seen together on a projector, a laptop and a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.playground import open_playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

pytestmark = pytest.mark.browser

SIZES: dict[str, dict[str, Any]] = {
    "projector": {"viewport": {"width": 1280, "height": 800}},
    "laptop": {"viewport": {"width": 1366, "height": 650}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
RECONSTRUCTION = "#reconstructed > .paper"


def box_of(part: Locator, window: dict[str, int]) -> tuple[int, int, int, int]:
    """The left, top, right and bottom of a part, all of which must be in the window."""
    box = part.bounding_box()
    assert box is not None
    left, top = round(box["x"]), round(box["y"])
    right, bottom = round(box["x"] + box["width"]), round(box["y"] + box["height"])
    assert left >= 0
    assert top >= 0
    assert right <= window["width"]
    assert bottom <= window["height"]
    return left, top, right, bottom


@pytest.mark.parametrize("size", ["projector", "phone"])
def test_the_first_directions_are_on_the_first_screen(
    size: str, browser: Browser, service_url: str
) -> None:
    """Three sliders and the reconstruction that they move are seen before anything scrolls."""
    window = SIZES[size]["viewport"]
    with open_playground(browser, service_url, **SIZES[size]) as playground:
        playground.take_sample(4)
        sliders = playground.page.locator("#directions input").all()
        assert 3 == len(sliders)
        for part in (playground.page.locator(RECONSTRUCTION), *sliders):
            box_of(part, window)
        assert 0 == playground.page.evaluate("scrollY")
