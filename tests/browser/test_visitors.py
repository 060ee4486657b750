"""The page by keyboard, on a phone, in the dark, and with pictures from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.pictures import SAMPLES
from tests.browser.playground import Playground, open_playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

HAND_OVER = """([kind, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], "seven.png", { type: "image/png" }));
  const options = { bubbles: true, cancelable: true };
  if (kind === "paste") {
    document.dispatchEvent(new ClipboardEvent(kind, { ...options, clipboardData: transfer }));
  } else {
    const place = document.querySelector(kind === "drop" ? "#pad .pad" : "#lengths");
    for (const event of ["dragover", "drop"]) {
      const drag = new DragEvent(event, { ...options, dataTransfer: transfer });
      if (place.dispatchEvent(drag)) throw new Error(`the browser opens the file: ${event}`);
    }
  }
}"""


def test_tabs_and_sliders_by_keyboard(playground: Playground) -> None:
    """Arrow keys choose tabs, Tab leads into the panel, arrow keys move a dimension."""
    playground.take_sample(2)
    keyboard = playground.page.keyboard
    playground.page.get_by_role("tab", name="Pose").focus()
    keyboard.press("ArrowRight")
    assert "Sweep" == playground.page.locator(":focus").inner_text()
    assert playground.page.locator("#sweep").is_visible()
    keyboard.press("End")
    tabs = playground.page.get_by_role("tablist", name="Views").get_by_role("tab")
    last = [name for name in tabs.all_inner_texts() if name][-1]
    assert last == playground.page.locator(":focus").inner_text()
    assert playground.page.get_by_role("tabpanel", name=last).is_visible()
    keyboard.press("Home")
    before = playground.page.locator("#reconstruction").get_attribute("src")
    keyboard.press("Tab")
    assert "How to read this" == playground.page.locator(":focus").inner_text()
    keyboard.press("Tab")
    first = playground.page.locator("#pose input").first.get_attribute("id")
    assert first == playground.page.locator(":focus").get_attribute("id")
    for _ in range(20):
        keyboard.press("ArrowRight")
    playground.page.locator(f'#reconstruction:not([src="{before}"])').wait_for()


@pytest.mark.parametrize("kind", ["drop", "drop beside the pad", "paste"])
def test_pictures_are_taken_from_elsewhere(kind: str, playground: Playground) -> None:
    """A file that is dropped on the page or pasted into it is read, and the page stays."""
    content = list((SAMPLES / "7.png").read_bytes())
    playground.page.evaluate(HAND_OVER, [kind, content])
    playground.settle()
    assert "7" == playground.label


def test_undo_takes_the_last_stroke_away(playground: Playground) -> None:
    """A seven without its bar is a seven, and without any stroke nothing."""
    top = [(0.25, 0.2), (0.75, 0.2), (0.45, 0.85)]
    playground.draw([top, [(0.4, 0.52), (0.72, 0.5)]])
    undo = playground.page.get_by_role("button", name="Undo").first
    undo.click()
    playground.settle()
    assert "7" == playground.label
    undo.click()
    playground.settle()
    assert "?" == playground.page.locator("#verdict").inner_text()
    assert undo.is_disabled()


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, service_url: str) -> None:
    """360 pixels are wide enough for every panel, and a finger draws."""
    options = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with open_playground(browser, service_url, **options) as playground:
        playground.take_sample(6)
        for tab in ("Pose", "Sweep", "Routing", "Equivariance"):
            playground.open_tab(tab)
            assert 360 == playground.page.evaluate("document.documentElement.scrollWidth")
        assert [] == playground.complaints
