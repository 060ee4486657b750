from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from model.bundle import Bundle, write_manifest
from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

NETWORK = "fashion-mnist-attention"
DEPTHWISE = "mnist-attention"
ENVIRONMENT = {
    "CAPSNET_WORKERS": "1",
    "CAPSNET_DEFAULT_MODEL": NETWORK,
    "CAPSNET_MODELS": f'["{NETWORK}", "{DEPTHWISE}"]',
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service with a network of clothes, and one whose capsules see the whole picture.

    The latter has a class whose name is a long word.
    """
    folder = tmp_path_factory.mktemp("bundles")
    for name in (NETWORK, DEPTHWISE):
        shutil.copytree(Path("model/bundles", name), folder / name)
    manifest = Bundle.open(folder / DEPTHWISE).manifest
    names = ("hubble_ultra_deep_field", *manifest.class_names[1:])
    write_manifest(folder / DEPTHWISE, replace(manifest, class_names=names))
    environment = {**ENVIRONMENT, "CAPSNET_BUNDLES": str(folder)}
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield client


def test_the_page_suits_classes_with_long_names(browser: Browser, service: httpx.Client) -> None:
    """Bars begin at one place, and samples are those of the data set, named as its classes."""
    with open_playground(browser, str(service.base_url)) as playground:
        tracks = playground.page.locator("#lengths .track")
        boxes = [tracks.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["x"]) for box in boxes})
        assert "Choose a picture" == playground.page.locator("#draw-title").inner_text()
        assert "Sandal" == playground.label
        names = service.get(f"/models/{NETWORK}").json()["class_names"]
        samples = playground.page.locator("#pad .samples button")
        assert names == [one.get_attribute("title") for one in samples.all()]
        for name in names:
            playground.take_sample(name)
            assert name == playground.label
        assert [] == playground.complaints


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_word_does_not_widen_its_map(
    browser: Browser, service: httpx.Client, width: int
) -> None:
    """All maps of the routing have one size, and lie next to each other."""
    with open_playground(browser, str(service.base_url)) as playground:
        playground.page.set_viewport_size({"width": width, "height": 844})
        playground.page.locator("#model").select_option(DEPTHWISE)
        playground.open_tab("Routing")
        maps = playground.page.locator("#routing .maps .paper")
        maps.last.wait_for()
        boxes = [maps.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["width"]) for box in boxes})


def test_capsules_of_one_place_are_told_apart(browser: Browser, service: httpx.Client) -> None:
    """Routing shows sixteen capsules, not one square over the whole picture."""
    with open_playground(browser, str(service.base_url)) as playground:
        playground.page.locator("#model").select_option(DEPTHWISE)
        playground.open_tab("Routing")
        routing = playground.page.locator("#routing")
        routing.get_by_text("Each of 16 capsules sees the whole picture").wait_for()
        cells = routing.locator(".focus .cells span")
        strength = "cells => cells.map((cell) => cell.style.opacity)"
        assert (16, 16) == (cells.count(), len(set(cells.evaluate_all(strength))))
        assert [] == playground.complaints
