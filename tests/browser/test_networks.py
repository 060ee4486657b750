"""The page of several networks: pairs, clothes, two at once, and what a bundle knows of itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from model import SHIPPED
from model.bundle import Bundle, write_manifest
from tests.browser.playground import Playground, new_visitor, open_playground
from tests.extras import CONFIDENCE
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytestmark = pytest.mark.browser

FIRST, SECOND = "#pair section:nth-of-type(1)", "#pair section:nth-of-type(2)"
CLOTHES = "fashion-mnist-attention"
COLOURS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [0, 1, 2].map((channel) => data.reduce(
    (sum, value, place) => sum + (place % 4 === channel ? value : 0), 0));
}"""
ALL_LABELS = replace(CONFIDENCE, thresholds=((0.3, 0.0, 0.0),))
"""At a coverage of 0.95, a set holds all labels."""


@pytest.fixture(scope="module")
def networks_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with networks for digits, clothes and pairs.

    `mnist` has a calibration whose sets hold all labels. The poses of `weak` explain little.
    """
    folder = tmp_path_factory.mktemp("bundles")
    for name in ("mnist-compact", CLOTHES, "multimnist-attention"):
        (folder / name).symlink_to(SHIPPED / name)
    for name, source in {"mnist": "mnist", "weak": "mnist-compact"}.items():
        shutil.copytree(SHIPPED / source, folder / name)
    manifest = Bundle.open(folder / "mnist").manifest
    write_manifest(folder / "mnist", replace(manifest, confidence=ALL_LABELS))
    manifest = Bundle.open(folder / "weak").manifest
    assert manifest.explained
    explained = replace(manifest.explained, pose=0.31)
    write_manifest(folder / "weak", replace(manifest, name="weak", explained=explained))
    environment = {
        "CAPSNET_BUNDLES": str(folder),
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@contextmanager
def look_at(
    visitor: BrowserContext, url: str, link: str, *, ready: bool = True
) -> Iterator[Playground]:
    """The page at a link; a test fails if it complains in the console or asks another host."""
    with open_playground(visitor, f"{url}/#{link}", ready=ready) as playground:
        yield playground
        assert [] == playground.complaints
        assert [] == playground.foreign_requests


def test_two_digits_are_taken_apart(visitor: BrowserContext, networks_url: str) -> None:
    """In the order of the pads, with their masks; one capsule cannot hold the same digit twice.

    The first is drawn in a warm colour, the second in a cold one.
    """
    with look_at(visitor, networks_url, "model=mnist-compact") as playground:
        page = playground.page
        playground.open_tab("Two digits")
        playground.take_sample(3, FIRST)
        playground.take_sample(5, SECOND)
        assert ["3", "5"] == page.locator("#pair .apart strong").all_inner_texts()
        canvases = page.locator("#pair .apart canvas")
        assert 3 == canvases.count()
        red, _, blue = canvases.nth(1).evaluate(COLOURS)
        assert red > blue
        red, _, blue = canvases.nth(2).evaluate(COLOURS)
        assert blue > red
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
        page.get_by_text("Both pictures show the class 3, but the network has").wait_for()
        assert "in neither picture alone" in facts.nth(2).inner_text()
        playground.take_sample(5, FIRST)
        page.get_by_text("Both pictures show the class 3").wait_for(state="detached")
        assert ["5", "3"] == page.locator("#pair .apart strong").all_inner_texts()


def test_on_a_phone_the_result_stands_by_the_pads(browser: Browser, networks_url: str) -> None:
    """Both pads and both digits are on one screen, and a link brings all of it back.

    The second digit can be moved: another distance is another picture, taken apart anew.
    """
    link = "tab=pair&first=mnist-3&second=mnist-5&right=2"
    size = {"width": 390, "height": 844}
    phone = new_visitor(browser, viewport=size, has_touch=True, is_mobile=True)
    with look_at(phone, networks_url, link, ready=False) as playground:
        page = playground.page
        figures = page.locator("#pair .apart canvas")
        figures.last.wait_for()
        playground.settle()
        boxes = [one.bounding_box() for one in figures.all()]
        assert 3 == len(boxes)
        assert all(box and box["y"] + box["height"] <= 844 for box in boxes), boxes
        assert "2 px" == page.locator("output[for=right]").inner_text()
        assert 390 == page.evaluate("document.documentElement.scrollWidth")
        overlay = page.get_by_role("img", name="both digits in one picture")
        before = overlay.get_attribute("src")
        with page.expect_response("**/segment*"):
            page.get_by_role("slider", name="second digit, moved right").press("ArrowLeft")
        playground.settle()
        assert before != overlay.get_attribute("src")
        assert "1 px" == page.locator("output[for=right]").inner_text()


def test_two_networks_are_compared(visitor: BrowserContext, networks_url: str) -> None:
    """Each with its lengths, reconstruction and sweep, of the same picture and class."""
    with look_at(visitor, networks_url, "model=mnist-compact&other=mnist") as playground:
        page = playground.page
        playground.take_sample(5)
        page.get_by_label("reconstructed as").select_option("6")
        playground.open_tab("Compare")
        compared = page.locator("#compare section")
        assert ["mnist-compact", "mnist"] == compared.locator("h3").all_inner_texts()
        first = compared.first.locator(".value").all_inner_texts()
        assert first == page.locator("#lengths .value").all_inner_texts()
        assert first != compared.last.locator(".value").all_inner_texts()
        images = [one.locator("img").get_attribute("src") for one in compared.all()]
        assert images[0] == page.locator("#reconstruction").get_attribute("src")
        assert images[0] != images[1]
        for sweep in page.locator("#compare .sweep").all():
            assert "thickness" in sweep.locator("tbody th").first.inner_text()
        page.set_viewport_size({"width": 360, "height": 740})
        assert 360 == page.evaluate("document.documentElement.scrollWidth")


def test_poses_that_show_little_are_not_drawn(visitor: BrowserContext, networks_url: str) -> None:
    """Their views and sliders are left out, with one sentence that says why and what helps."""
    with look_at(visitor, networks_url, "model=weak") as playground:
        page = playground.page
        playground.take_sample(5)
        assert "explains 31 %" in page.locator("#missing").inner_text().replace("\u00a0", " ")
        shown = page.locator(".lenses [role=tab]:visible").all_inner_texts()
        assert {"Routing", "Neighbours", "Occlusion"} <= set(shown)
        assert not {"Pose", "Sweep", "Rivals", "Morph"} & set(shown)
        assert 0 == page.get_by_role("slider", name="thickness").count()


def test_the_page_suits_classes_with_long_names(visitor: BrowserContext, networks_url: str) -> None:
    """Bars begin at one place, and samples are those of the data set, named as its classes."""
    with look_at(visitor, networks_url, f"model={CLOTHES}") as playground:
        tracks = playground.page.locator("#lengths .track")
        boxes = [tracks.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["x"]) for box in boxes})
        assert "Choose a picture" == playground.page.locator("#draw-title").inner_text()
        assert "Sandal" == playground.label
        names = list(Bundle.open(SHIPPED / CLOTHES).manifest.class_names)
        samples = playground.page.locator("#pad .samples button")
        assert names == [one.get_attribute("title") for one in samples.all()]
        playground.take_sample("Bag")
        assert "Bag" == playground.label


def test_what_a_bundle_knows_of_itself_is_shown(visitor: BrowserContext, networks_url: str) -> None:
    """Health has a lens. An answer names every label of its set, and says what a set is."""
    with look_at(visitor, networks_url, "model=mnist") as playground:
        page = playground.page
        playground.take_sample(5)
        assert re.fullmatch(r"5, \d or 8 others", playground.label)
        figures, meaning = page.locator("#verdict .quiet").all_inner_texts()
        assert re.fullmatch(r"5: length 0\.\d\d, probability 1\.00", figures)
        assert "95 % of all sets" in meaning
        playground.open_tab("Health")
        lens = page.locator("#health")
        lens.get_by_role("img", name="the health of mnist").wait_for()
        assert "health.html" in (lens.get_by_role("link").get_attribute("href") or "")
