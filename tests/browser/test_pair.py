from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from model.bundle import MANIFEST, Bundle
from service.settings import Settings
from tests.browser.playground import Playground, open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

FIRST, SECOND = "#pair section:nth-of-type(1)", "#pair section:nth-of-type(2)"
PAIRS = sorted(
    path.parent.name
    for path in Settings().bundles.glob(f"*/{MANIFEST}")
    if Bundle.open(path.parent).manifest.mask_threshold is not None
)
COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [0, 1, 2].map((channel) => data.reduce(
    (sum, value, place) => sum + (place % 4 === channel ? value : 0), 0));
}"""


@pytest.fixture(scope="module")
def pair_url(strokes_bundle_path: Path) -> Iterator[str]:
    """A service with a network for single pictures and a tiny one for pairs."""
    environment = {
        "CAPSNET_BUNDLES": str(strokes_bundle_path.parent),
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@pytest.fixture
def playground(browser: Browser, pair_url: str) -> Iterator[Playground]:
    """The second tab, with a three and a five."""
    with open_playground(browser, pair_url) as playground:
        playground.open_tab("Two digits")
        playground.take_sample(3, FIRST)
        playground.take_sample(5, SECOND)
        yield playground
        assert [] == playground.complaints
        assert [] == playground.foreign_requests


def test_two_digits_are_taken_apart_in_colour(playground: Playground) -> None:
    """Both together and each alone: the first in a warm colour, the second in a cold one."""
    canvases = playground.page.locator("#pair .apart canvas")
    assert 3 == canvases.count()
    red, _, blue = canvases.nth(1).evaluate(COLOURS)
    assert red > blue
    red, _, blue = canvases.nth(2).evaluate(COLOURS)
    assert blue > red
    assert playground.page.get_by_role("img", name="both digits in one picture").is_visible()


def test_the_second_digit_can_be_moved(playground: Playground) -> None:
    """Another distance is another picture, and is taken apart anew."""
    overlay = playground.page.get_by_role("img", name="both digits in one picture")
    before = overlay.get_attribute("src")
    with playground.page.expect_response("**/segment*"):
        playground.page.get_by_role("slider", name="second digit, moved right").press("ArrowLeft")
    playground.settle()
    assert before != overlay.get_attribute("src")
    assert "3 px" == playground.page.locator("output[for=right]").inner_text()


@pytest.mark.parametrize("name", PAIRS)
def test_shipped_networks_name_both_samples(browser: Browser, name: str) -> None:
    """In the order of the pads, with their masks; one capsule cannot hold the same digit twice."""
    models = json.dumps(["mnist-compact", name])
    environment = {
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": models,
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        playground.open_tab("Two digits")
        playground.take_sample(3, FIRST)
        playground.take_sample(5, SECOND)
        page = playground.page
        assert ["3", "5"] == page.locator("#pair .apart strong").all_inner_texts()
        facts = page.locator("#pair .apart figcaption")
        assert "the first digit" in facts.nth(1).inner_text()
        assert "the second digit" in facts.nth(2).inner_text()
        assert ["strokes of the 3", "strokes of the 5"] == (
            page.locator("#pair .mask span").all_inner_texts()
        )
        assert page.locator("#pair .told").inner_text().startswith("a 3")
        three = page.locator("#pair .apart figure").nth(1)
        before = three.locator("canvas").screenshot()
        three.get_by_label("thickness").press("End")
        page.locator("output[for=first-thickness]", has_text="drawn").wait_for()
        assert before != three.locator("canvas").screenshot()
        playground.take_sample(3, SECOND)
        page.get_by_text("Both pictures show a 3, but the network has one capsule").wait_for()
        assert "in neither picture" in facts.nth(2).inner_text()
        playground.take_sample(5, FIRST)
        page.get_by_text("Both pictures show a 3").wait_for(state="detached")
        assert ["5", "3"] == page.locator("#pair .apart strong").all_inner_texts()
        assert [] == playground.complaints


def test_on_a_phone_the_result_stands_by_the_pads(browser: Browser, pair_url: str) -> None:
    """Both pads and both digits are on one screen, and a link brings all of it back."""
    link = f"{pair_url}/#tab=pair&first=mnist-3&second=mnist-5&right=2"
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with open_playground(browser, link, ready=False, **options) as playground:
        figures = playground.page.locator("#pair .apart canvas")
        figures.last.wait_for()
        boxes = [one.bounding_box() for one in figures.all()]
        assert 3 == len(boxes)
        assert all(box and box["y"] + box["height"] <= 844 for box in boxes)
        assert "2 px" == playground.page.locator("output[for=right]").inner_text()
        assert 390 == playground.page.evaluate("document.documentElement.scrollWidth")
        assert [] == playground.complaints
