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
PREVIEW = "#pose .preview img"


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


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two boxes have a point in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("size", SIZES)
def test_each_slider_is_seen_with_the_reconstruction(
    size: str, browser: Browser, service_url: str
) -> None:
    """Tab leads from slider to slider: each is in the window with the picture that it moves."""
    window = SIZES[size]["viewport"]
    with open_playground(browser, service_url, **SIZES[size]) as playground:
        page = playground.page
        playground.take_sample(4)
        page.get_by_role("tab", name="Pose").focus()
        preview = page.locator(PREVIEW)
        for slider in page.locator("#pose input").all():
            while not slider.evaluate("element => element === document.activeElement"):
                page.keyboard.press("Tab")
            page.wait_for_timeout(50)  # the browser scrolls
            assert not overlap(box_of(preview, window), box_of(slider, window))
        before = preview.get_attribute("src")
        page.keyboard.press("End")
        page.locator(f'{PREVIEW}:not([src="{before}"])').wait_for()
        assert [] == playground.complaints


@pytest.mark.parametrize("size", SIZES)
def test_the_tour_shows_what_it_asks_to_watch(
    size: str, browser: Browser, service_url: str
) -> None:
    """In its third step a slider and the reconstruction are in the window, not under the card."""
    window = SIZES[size]["viewport"]
    options = {**SIZES[size], "reduced_motion": "reduce"}
    with open_playground(browser, service_url, first_visit=True, **options) as playground:
        page = playground.page
        page.get_by_role("button", name="Start the tour").click()
        for _ in range(2):
            page.get_by_role("button", name="Next").click()
            playground.settle()
        page.get_by_role("heading", name="3 of 4").wait_for()
        card = box_of(page.locator("#tour"), window)
        for part in (page.locator(PREVIEW), page.locator("#pose input").first):
            assert not overlap(card, box_of(part, window))
