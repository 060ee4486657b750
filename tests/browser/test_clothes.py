from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

NETWORK = "fashion-mnist-attention"
ENVIRONMENT = {"CAPSNET_DEFAULT_MODEL": NETWORK, "CAPSNET_MODELS": f'["{NETWORK}"]'}


def test_the_page_suits_classes_with_long_names(browser: Browser) -> None:
    """All bars begin at the same place, and nobody is asked for a digit."""
    with (
        running(lambda _environment: SOURCE, ENVIRONMENT) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        tracks = playground.page.locator("#lengths .track")
        boxes = [tracks.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["x"]) for box in boxes})
        assert "Choose a picture" == playground.page.locator("#draw-title").inner_text()
        assert "One picture" == playground.page.get_by_role("tab").first.inner_text()
        assert [] == playground.complaints


def test_each_piece_of_clothing_is_named(browser: Browser) -> None:
    """The samples are those of the network's data set, under the names of its classes."""
    with (
        running(lambda _environment: SOURCE, ENVIRONMENT) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        names = client.get(f"/models/{NETWORK}").json()["class_names"]
        samples = playground.page.locator("#pad .samples button").all_inner_texts()
        assert names == samples
        for name in names:
            playground.take_sample(name)
            assert name == playground.label
        assert [] == playground.complaints
