"""The tour, the comparison of two networks, and networks whose poses show little."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from model.bundle import MANIFEST
from service.settings import Settings
from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_the_tour_is_offered_until_it_was_taken(browser: Browser, service_url: str) -> None:
    """Beside the page, not over it; it leads through the parts that there are, on request again."""
    with open_playground(browser, service_url, first_visit=True) as playground:
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


def test_two_networks_are_compared(browser: Browser) -> None:
    """Each with its lengths, reconstruction and sweep, of the same picture and class."""
    models = '["mnist-compact", "mnist"]'
    environment = {
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": models,
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
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
        assert [] == playground.complaints


def test_poses_that_show_little_are_not_drawn(browser: Browser, tmp_path: Path) -> None:
    """Their views and sliders are left out, with one sentence that says why and what helps."""
    bundle = shutil.copytree(Settings().bundles / "mnist-compact", tmp_path / "mnist-compact")
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["explained"]["pose"] = 0.31
    (bundle / MANIFEST).write_text(json.dumps(manifest))
    environment = {
        "CAPSNET_BUNDLES": str(tmp_path),
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        page = playground.page
        playground.take_sample(5)
        assert "explains 31 %" in page.locator("#missing").inner_text().replace("\u00a0", " ")
        shown = page.locator(".lenses [role=tab]:visible").all_inner_texts()
        assert {"Routing", "Neighbours", "Occlusion"} <= set(shown)
        assert not {"Pose", "Sweep", "Rivals", "Morph"} & set(shown)
        assert 0 == page.get_by_role("slider", name="thickness").count()
        assert [] == playground.complaints
