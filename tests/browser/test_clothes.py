from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

NETWORK = "fashion-mnist-compact"


def test_the_page_suits_classes_with_long_names(browser: Browser) -> None:
    """All bars begin at the same place, and nobody is asked for a digit."""
    environment = {"CAPSNET_DEFAULT_MODEL": NETWORK, "CAPSNET_MODELS": f'["{NETWORK}"]'}
    with (
        running(lambda _environment: SOURCE, environment) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        tracks = playground.page.locator("#lengths .track")
        boxes = [tracks.nth(label).bounding_box() for label in range(10)]
        assert 1 == len({box and round(box["x"]) for box in boxes})
        assert "Show a picture" == playground.page.locator("#draw-title").inner_text()
        assert not playground.page.locator("#pad .samples").is_visible()
        assert [] == playground.complaints
