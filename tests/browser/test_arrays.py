"""A network of arrays that no browser can show."""

from __future__ import annotations

import base64
import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.browser.playground import open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
INVITATION = "choose or drop an array of 5 channels"


def test_arrays_are_looked_into(browser: Browser, sized_bundles: Path, tmp_path: Path) -> None:
    """Three of the channels are shown in colour; the pad says why it cannot show the file."""
    shutil.copytree(sized_bundles / "bands", tmp_path / "bands")
    values = np.random.default_rng(1).integers(0, 65_536, (20, 24, 5)).astype(np.uint16)
    content = io.BytesIO()
    np.save(content, values)
    environment = {
        "CAPSNET_BUNDLES": str(tmp_path),
        "CAPSNET_DEFAULT_MODEL": "bands",
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment) as (_process, client),
        open_playground(browser, str(client.base_url)) as playground,
    ):
        page = playground.page
        assert page.get_by_text(INVITATION).is_visible()
        file = {"mimeType": "application/octet-stream", "buffer": content.getvalue()}
        page.locator("#pad input[type=file]").set_input_files({"name": "field.npy", **file})
        for part in ("#fitted", "#reconstruction"):
            page.locator(f"{part}[src]").wait_for()
            address = str(page.locator(part).get_attribute("src"))
            image = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
            assert ("RGB", (24, 20)) == (image.mode, image.size), part
        assert playground.label in {"red", "green", "blue"}
        assert page.get_by_text("Your browser cannot show field.npy").is_visible()
        playground.clear()
        assert page.get_by_text(INVITATION).is_visible()
        assert [] == playground.complaints
