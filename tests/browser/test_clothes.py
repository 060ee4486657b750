from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

NETWORK = "fashion-mnist-attention"
ENVIRONMENT = {
    "CAPSNET_WORKERS": "1",
    "CAPSNET_DEFAULT_MODEL": NETWORK,
    "CAPSNET_MODELS": f'["{NETWORK}"]',
}


def test_the_page_suits_classes_with_long_names(browser: Browser) -> None:
    """Bars begin at one place, and samples are those of the data set, named as its classes."""
    with (
        running(lambda _environment: SOURCE, ENVIRONMENT) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        tracks = playground.page.locator("#lengths .track")
        boxes = [tracks.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["x"]) for box in boxes})
        assert "Choose a picture" == playground.page.locator("#draw-title").inner_text()
        assert "Sandal" == playground.label
        names = client.get(f"/models/{NETWORK}").json()["class_names"]
        samples = playground.page.locator("#pad .samples button")
        assert names == [one.get_attribute("title") for one in samples.all()]
        playground.take_sample("Bag")
        assert "Bag" == playground.label
        assert [] == playground.complaints
