"""Networks of large pictures, and of arrays that no browser can show."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.browser.playground import Playground, open_playground
from tests.browser.test_families import choose
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
PATIENCE_S = 110
"""The time for an answer while other tests keep the cores busy."""
SIZES = {"large": (224, 224), "bands": (24, 20)}
"""Width and height of the images of each network."""
CLASSES = {"red", "green", "blue"}


def photo(side_px: int = 224) -> bytes:
    """A red disc on blue, a PNG file."""
    picture = Image.new("RGB", (side_px, side_px), (20, 30, 90))
    picture.paste((220, 40, 30), (side_px // 4, side_px // 4, side_px // 2, side_px // 2))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def array() -> bytes:
    """20 rows, 24 columns and 5 channels of 16 bits, a NumPy file."""
    values = np.random.default_rng(1).integers(0, 65_536, (20, 24, 5)).astype(np.uint16)
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.fixture(scope="module")
def large_url(sized_bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service of two untrained networks; the one for pictures brings a sample."""
    folder = tmp_path_factory.mktemp("large")
    for name in SIZES:
        shutil.copytree(sized_bundles / name, folder / name)
    samples = folder / "large" / "samples"
    samples.mkdir()
    (samples / "disc.png").write_bytes(photo())
    known = {"label": 0, "class_name": "red", "licence": "yours", "source": "painted"}
    (samples / "samples.json").write_text(json.dumps([{"file": "disc.png", **known}]))
    environment = {
        "CAPSNET_BUNDLES": str(folder),
        "CAPSNET_DEFAULT_MODEL": "bands",
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_REQUEST_TIMEOUT_S": str(PATIENCE_S),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@pytest.fixture
def playground(browser: Browser, large_url: str) -> Iterator[Playground]:
    with open_playground(browser, large_url) as playground:
        playground.page.set_default_timeout(1000 * PATIENCE_S)
        yield playground
        assert [] == playground.complaints


def drawn(playground: Playground, part: str) -> Image.Image:
    """An image of the service that the page shows."""
    playground.page.locator(f"{part}[src]").wait_for()
    address = playground.page.locator(part).get_attribute("src")
    assert address is not None
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def check(playground: Playground, name: str) -> None:
    """There is an answer, and a reconstruction that follows a slider."""
    page = playground.page
    assert playground.label in CLASSES
    for part in ("#fitted", "#reconstruction"):
        image = drawn(playground, part)
        assert ("RGB", SIZES[name]) == (image.mode, image.size), part
    with page.expect_response("**/decode*") as decoded:
        page.locator("#pose input").first.fill("0.5")
    assert 200 == decoded.value.status  # poses hardly change what an untrained network draws
    page.get_by_text("reconstruction from the moved pose").wait_for()
    assert SIZES[name] == drawn(playground, "#reconstruction").size


def test_large_pictures_are_looked_into(playground: Playground) -> None:
    """The network's own sample, and a larger file."""
    choose(playground, "large")
    playground.take_sample("red")
    check(playground, "large")
    file = {"name": "mine.png", "mimeType": "image/png", "buffer": photo(600)}
    playground.page.locator("#pad input[type=file]").set_input_files(file)
    playground.page.get_by_role("img", name="your picture").wait_for()
    playground.settle()
    check(playground, "large")


def test_arrays_are_looked_into(playground: Playground) -> None:
    """Three of the channels are shown in colour; the pad says why it cannot show the file."""
    page = playground.page
    choose(playground, "bands")
    assert page.get_by_text("choose or drop an array of 5 channels").is_visible()
    file = {"name": "field.npy", "mimeType": "application/octet-stream", "buffer": array()}
    page.locator("#pad input[type=file]").set_input_files(file)
    page.locator("#fitted[src]").wait_for()
    playground.settle()
    check(playground, "bands")
    assert page.get_by_text("Your browser cannot show field.npy").is_visible()
    page.get_by_role("button", name="Clear").first.click()
    playground.settle()
    assert page.get_by_text("choose or drop an array of 5 channels").is_visible()


@pytest.mark.parametrize(
    ("name", "file", "content"), [("large", "mine.png", photo()), ("bands", "mine.npy", array())]
)
def test_every_lens_shows_something(
    name: str, file: str, content: bytes, playground: Playground
) -> None:
    """In the time of a request. No network is compared with one that takes other pictures."""
    page = playground.page
    choose(playground, name)
    own = {"name": file, "mimeType": "application/octet-stream", "buffer": content}
    page.locator("#pad input[type=file]").set_input_files(own)
    page.locator("#fitted[src]").wait_for()
    playground.settle()
    tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
    lenses = [tab.inner_text() for tab in tabs.all() if tab.is_visible()]
    assert ["Pose", "Sweep", "Routing", "Equivariance", "Occlusion"] == lenses[:5]
    assert ["Rivals", "Morph", "Neighbours"] == lenses[5:]
    for lens in lenses:
        playground.open_tab(lens)
        panel = page.get_by_role("tabpanel", name=lens)
        if (name, lens) == ("bands", "Morph"):
            panel.get_by_text("Choose a second picture.").wait_for()
            panel.locator("input[type=file]").set_input_files({**own, "name": "second.npy"})
            playground.settle()
            chosen = panel.get_by_label("second picture").locator("option:checked")
            assert "second.npy" == chosen.inner_text()
        panel.locator("img[src], canvas, svg, table").first.wait_for(state="attached")
