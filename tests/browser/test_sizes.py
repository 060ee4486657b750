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
FAULTS = """() => {
  const texts = [];
  for (const panel of document.querySelectorAll("[role=tabpanel] [role=tabpanel]:not([hidden])")) {
    const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const part = walker.currentNode.parentElement;
      const words = walker.currentNode.textContent.trim();
      const style = getComputedStyle(part);
      const seen = part.checkVisibility() && !part.closest(".unseen, select");
      if (!words || !seen || style.color === "rgba(0, 0, 0, 0)") continue;
      const drawing = part.closest("svg");
      const { width } = drawing?.getBoundingClientRect() ?? {};
      const scale = drawing ? width / drawing.viewBox.baseVal.width : 1;
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      const boxes = [...range.getClientRects()];
      texts.push({ part, words, boxes, px: scale * parseFloat(style.fontSize) });
    }
  }
  const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4;
  const faults = texts.filter(({ px }) => px < 11).map(({ words, px }) => `${px} px: ${words}`);
  for (const [place, one] of texts.entries()) {
    for (const other of texts.slice(place + 1)) {
      const crowd = one.boxes.some((box) => other.boxes.some((next) => meet(box, next)));
      if (one.part !== other.part && crowd) faults.push(`${one.words} lies on ${other.words}`);
    }
  }
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) faults.push(`${scrollWidth - clientWidth} px too wide`);
  return faults;
}"""


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


@pytest.mark.parametrize("size", ["laptop", "phone"])
def test_each_lens_can_be_read(size: str, browser: Browser, service_url: str) -> None:
    """No text is smaller than 11 pixels or lies on another, and nothing scrolls sideways."""
    with open_playground(browser, service_url, **SIZES[size]) as playground:
        page = playground.page
        playground.take_sample(4)
        tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
        for lens in [name for name in tabs.all_inner_texts() if name]:
            playground.open_tab(lens)
            assert [] == page.evaluate(FAULTS), lens
        assert [] == playground.complaints
