"""The page by keyboard, by link, on a phone and a projector, and while the service is not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from service.pictures import SAMPLES
from service.settings import Settings
from tests.browser.playground import Playground, new_visitor, open_playground
from tests.processes import SOURCE, SlowStorage, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

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


def test_pictures_are_taken_from_elsewhere(playground: Playground) -> None:
    """A file that is dropped on the page or pasted into it is read, and the page stays."""
    content = list((SAMPLES / "7.png").read_bytes())
    for kind in ("drop", "drop beside the pad", "paste"):
        playground.clear()
        playground.page.evaluate(HAND_OVER, [kind, content])
        playground.settle()
        assert "7" == playground.label, kind


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
    size = {"width": 360, "height": 740}
    phone = new_visitor(browser, viewport=size, has_touch=True, is_mobile=True)
    with open_playground(phone, service_url) as playground:
        playground.take_sample(6)
        for tab in ("Pose", "Sweep", "Routing", "Equivariance"):
            playground.open_tab(tab)
            assert 360 == playground.page.evaluate("document.documentElement.scrollWidth")
        assert [] == playground.complaints


SIZES: dict[str, dict[str, Any]] = {
    "projector": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


@pytest.mark.parametrize("size", SIZES)
def test_the_first_directions_are_on_the_first_screen(
    size: str, browser: Browser, service_url: str
) -> None:
    """Three sliders and the reconstruction that they move are seen before anything scrolls."""
    window = SIZES[size]["viewport"]
    with open_playground(new_visitor(browser, **SIZES[size]), service_url) as playground:
        playground.take_sample(4)
        sliders = playground.page.locator("#directions input").all()
        assert 3 == len(sliders)
        for part in (playground.page.locator("#reconstructed > .paper"), *sliders):
            box = part.bounding_box()
            assert box is not None
            assert 0 <= round(box["x"]) <= round(box["x"] + box["width"]) <= window["width"]
            assert 0 <= round(box["y"]) <= round(box["y"] + box["height"]) <= window["height"]
        assert 0 == playground.page.evaluate("scrollY")


SEVEN = [[(0.25, 0.2), (0.75, 0.2), (0.45, 0.85)], [(0.4, 0.52), (0.72, 0.5)]]
STAND_IN = """() => {
  const clipboard = { writeText: async (text) => { window.copied = text; } };
  Object.defineProperty(navigator, "clipboard", { value: clipboard });
}"""
PIXELS = "document.querySelector('#pad canvas').toDataURL()"


def copy_link(playground: Playground) -> str:
    """Press the button, with a clipboard that needs no permission."""
    playground.page.evaluate(STAND_IN)
    playground.page.get_by_role("button", name="Copy link").click()
    playground.page.get_by_role("status").filter(has_text="Link copied").wait_for()
    return str(playground.page.evaluate("window.copied"))


def lengths(playground: Playground) -> list[str]:
    """As the bars say."""
    return playground.page.locator("#lengths .value").all_inner_texts()


def test_a_link_shows_a_drawing_and_all_that_was_chosen(playground: Playground) -> None:
    """The strokes, the class, the moved dimension and the tab, in a page of its own."""
    page = playground.page
    playground.draw(SEVEN)
    page.get_by_label("reconstructed as").select_option("9")
    playground.settle()
    playground.show_numbers()
    with page.expect_response("**/decode*"):
        page.locator("#dimension-2").fill("0.25")
    playground.open_tab("Equivariance")
    page.get_by_label("transform", exact=True).select_option("shift-x")
    playground.settle()
    link = copy_link(playground)
    assert len(link) < 1000
    with open_playground(page.context, link) as other:
        other.page.locator("#verdict strong").wait_for()
        other.settle()
        assert lengths(playground) == lengths(other)
        assert page.evaluate(PIXELS) == other.page.evaluate(PIXELS)
        assert "9" == other.page.get_by_label("reconstructed as").input_value()
        moved = page.locator("#reconstruction").get_attribute("src")
        other.page.locator(f'#reconstruction[src="{moved}"]').wait_for()
        assert "shift-x" == other.page.get_by_label("transform", exact=True).input_value()
        other.open_tab("Pose")
        assert "+0.25" == other.page.locator("output[for=dimension-2]").inner_text()
        assert [] == other.complaints


def test_back_and_forward_go_through_what_was_shown(playground: Playground) -> None:
    """Pictures and tabs; a moved slider is no step of its own, and comes back with its picture."""
    page = playground.page
    playground.take_sample(3)
    steps = page.evaluate("history.length")
    playground.show_numbers()
    with page.expect_response("**/decode*"):
        page.locator("#dimension-0").press("ArrowRight")
    page.wait_for_url("**pose=0_1")
    for _ in range(9):
        page.locator("#dimension-0").press("ArrowRight")
    page.wait_for_url("**pose=0_10*")
    assert steps == page.evaluate("history.length")
    playground.take_sample(5)
    playground.open_tab("Sweep")
    page.go_back()
    page.locator("#pose").wait_for()
    page.go_back()
    page.locator('#pad img[alt="a sample: 3"]').wait_for()
    page.locator("output[for=dimension-0]", has_text="+0.1").wait_for()
    page.locator("#verdict strong", has_text="3").wait_for()
    page.go_forward()
    page.go_forward()
    page.locator("#sweep tbody tr").last.wait_for()
    page.locator("#verdict strong", has_text="5").wait_for()


KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A service that wants a key."""
    environment = {
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_WORKERS": "1",
        "CAPSNET_API_KEYS": json.dumps([KEY]),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


def test_a_key_is_asked_for_and_sent(visitor: BrowserContext, guarded_url: str) -> None:
    """The page loads without, asks once more if the key is wrong, and keeps the right one."""
    with open_playground(visitor, guarded_url, ready=False) as playground:
        for key in ("not-the-right-one", "a-key-with-an-ellipsis…", KEY):
            field = playground.page.get_by_label("Key", exact=True)
            field.fill(key)
            field.press("Enter")
        playground.page.locator("#lengths li").first.wait_for()
        playground.take_sample(3)
        assert "3" == playground.label
        playground.page.reload()
        playground.take_sample(4)
        assert "4" == playground.label
        assert all("401" in complaint for complaint in playground.complaints)


def test_a_service_that_starts_is_waited_for(visitor: BrowserContext, tmp_path: Path) -> None:
    """The page is there at once, says what it waits for, and goes on when bundles are loaded."""
    bundle = tmp_path / "bundles" / "mnist-compact"
    shutil.copytree(Settings().bundles / bundle.name, bundle)
    storage = SlowStorage(tmp_path)
    storage.hold()
    environment = {
        **storage.environment,
        "CAPSNET_BUNDLES": str(bundle.parent),
        "CAPSNET_DEFAULT_MODEL": bundle.name,
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment, probe="/livez") as (_process, client),
        open_playground(visitor, str(client.base_url), ready=False) as playground,
    ):
        notice = playground.page.get_by_role("status")
        notice.filter(has_text="The service is starting. Trying again in").wait_for()
        storage.release()
        playground.take_sample(3)
        assert "3" == playground.label
        assert "" == playground.page.locator("#notice").inner_text()
        assert all("503" in complaint for complaint in playground.complaints)


def test_a_service_that_is_gone_is_named_until_it_is_back(playground: Playground) -> None:
    """No answer at all is said in words, too; what was asked for is answered after a restart."""
    playground.page.route("**/classify*", lambda route: route.abort())
    playground.page.locator("#pad").get_by_role("button", name="Sample 3").click()
    notice = playground.page.get_by_role("status")
    notice.filter(has_text="The service does not answer. Trying again in").wait_for()
    playground.page.unroute("**/classify*")
    playground.page.locator("#verdict strong", has_text="3").wait_for()
    assert "" == playground.page.locator("#notice").inner_text()
    assert all("ERR_FAILED" in complaint for complaint in playground.complaints)
    playground.complaints.clear()


def test_the_tour_is_offered_until_it_was_taken(browser: Browser, service_url: str) -> None:
    """Beside the page, not over it; it leads through the parts that there are, on request again."""
    with open_playground(new_visitor(browser, first_visit=True), service_url) as playground:
        page = playground.page
        offer, main = page.locator("#tour").bounding_box(), page.locator("main").bounding_box()
        assert offer is not None
        assert main is not None
        assert offer["y"] + offer["height"] <= main["y"]
        page.get_by_role("button", name="Start the tour").click()
        for place in range(1, 4):
            page.get_by_role("heading", name=f"{place} of 4").wait_for()
            playground.settle()
            assert page.locator(".pointed").is_visible()
            page.get_by_role("button", name="Next").click()
        assert page.locator("#routing.pointed").is_visible()
        page.get_by_role("button", name="Finish").click()
        assert not page.locator("#tour").is_visible()
        assert "open-tour" == page.locator(":focus").get_attribute("id")
        page.reload()
        page.get_by_role("button", name="Tour").wait_for()
        assert not page.locator("#tour").is_visible()
        page.get_by_role("button", name="Tour").click()
        page.keyboard.press("Escape")
        assert not page.locator("#tour").is_visible()
        assert [] == playground.complaints
