"""Networks of other kinds than the first: other routing, none at all, photographs."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from model.bundle import Bundle, write_manifest
from model.bundle.explained import Explained
from tests.browser.playground import Playground, open_playground
from tests.browser.test_visitors import HAND_OVER
from tests.health import add_health
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def families_url(
    family_bundles: Path, colour_bundle_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A service with an untrained network of each family, and one for photographs with samples."""
    folder = tmp_path_factory.mktemp("all")
    for bundle in family_bundles.iterdir():
        (folder / bundle.name).symlink_to(bundle)
    (folder / "tiny-shared").unlink()
    shared = Path(shutil.copytree(family_bundles / "tiny-shared", folder / "tiny-shared"))
    explained = Explained("images of another town", 1200, 0.4, 0.2, {"16": 0.7}, 16)
    write_manifest(shared, replace(Bundle.open(shared).manifest, explained=explained))
    add_health(shared)
    samples = Path(shutil.copytree(colour_bundle_path, folder / "blocks")) / "samples"
    samples.mkdir()
    known = {"label": 0, "class_name": "red", "licence": "yours", "source": "painted"}
    (samples / "samples.json").write_text(
        json.dumps([{"file": f"{name}.png", **known} for name in "ab"])
    )
    for name in "ab":
        (samples / f"{name}.png").write_bytes(photo())
    environment = {
        "CAPSNET_BUNDLES": str(folder),
        "CAPSNET_DEFAULT_MODEL": "tiny-dynamic",
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@pytest.fixture
def playground(browser: Browser, families_url: str) -> Iterator[Playground]:
    """The page with a stroke on it."""
    with open_playground(browser, families_url) as playground:
        playground.draw([[(0.25, 0.2), (0.75, 0.2), (0.45, 0.85)]])
        yield playground
        assert [] == playground.complaints


def choose(playground: Playground, name: str) -> None:
    """Take another network."""
    playground.page.get_by_label("Network").select_option(name)
    playground.settle()


def photo() -> bytes:
    """A red patch on white, 80x40 pixels."""
    picture = Image.new("RGB", (80, 40), "white")
    picture.paste((220, 20, 30), (25, 5, 55, 35))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_what_a_network_does_not_offer_is_hidden(playground: Playground) -> None:
    """One sentence says so, and the keyboard passes over it; another network brings it back."""
    page = playground.page
    choose(playground, "tiny-baseline")
    sentence = "This network has no reconstruction, no pose, no sweep and no routing."
    assert sentence == page.locator("#missing").inner_text()
    tabs = page.get_by_role("tablist", name="Views").get_by_role("tab")
    assert ["Equivariance", "Occlusion", "Compare"] == [
        tab.inner_text() for tab in tabs.all() if tab.is_visible()
    ]
    assert not page.locator("#reconstructed").is_visible()
    page.get_by_role("img", name="Equivariance").wait_for()
    page.get_by_role("tab", name="Equivariance").press("ArrowRight")
    assert page.locator("#view-occlusion").is_visible()
    choose(playground, "tiny-dynamic")
    assert "" == page.locator("#missing").inner_text()
    shown = [tab.inner_text() for tab in tabs.all() if tab.is_visible()]
    own = ["Pose", "Sweep", "Routing", "Equivariance", "Occlusion", "Rivals", "Morph"]
    assert [*own, "Neighbours", "Health", "Compare"] == shown


def test_the_page_says_what_a_pose_explains(playground: Playground) -> None:
    """In the lens Health; views that need no decoder have no note."""
    page = playground.page
    choose(playground, "tiny-shared")
    assert not page.locator("#share").is_visible()
    playground.open_tab("Health")
    sentence = "A pose of 16 numbers explains 40 % of the variance of 1,200 images of another town."
    shown = page.locator("#share").inner_text().replace("\u00a0", " ")
    assert f"{sentence} PCA of the same class with 16 numbers explains 70 %." == shown
    limits = page.locator("#limits")
    page.get_by_role("tab", name="Occlusion").click()
    playground.settle()
    assert not limits.is_visible()
    choose(playground, "tiny-attention")
    assert not page.locator("#share").is_visible()
    page.get_by_role("tab", name="Sweep").click()
    playground.settle()
    assert not limits.is_visible()


def test_matrix_capsules_show_their_layers(playground: Playground) -> None:
    """A map for each capsule type, which changes with the iteration."""
    choose(playground, "tiny-matrix")
    playground.open_tab("Routing")
    layers = playground.page.locator("#routing .hidden-layer")
    assert [3, 2] == [layer.locator(".cells").count() for layer in layers.all()]
    first_type = "#routing .hidden-layer .paper"
    last = playground.look(first_type)
    playground.page.get_by_role("slider", name="iteration").press("ArrowLeft")
    assert last.tobytes() != playground.look(first_type).tobytes()


@pytest.mark.parametrize("way", ["file", "drop", "paste"])
def test_photographs_are_shown_in_colour(way: str, playground: Playground) -> None:
    """There is no pad to draw on; what was sent and what is reconstructed keep their colours."""
    page = playground.page
    choose(playground, "blocks")
    assert not page.locator("#pad canvas").is_visible()
    playground.clear()
    assert page.get_by_text("choose, drop or paste a picture").is_visible()
    if way == "file":
        file = {"name": "photo.png", "mimeType": "image/png", "buffer": photo()}
        page.locator("#pad input[type=file]").set_input_files(file)
    else:
        page.evaluate(HAND_OVER, [way, list(photo())])
    playground.settle()
    assert playground.label in {"red", "green", "blue"}
    address = page.locator("#fitted").get_attribute("src")
    assert address is not None
    seen = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
    assert ("RGB", (32, 24)) == (seen.mode, seen.size)
    filters = "element => getComputedStyle(element).filter"
    assert {"none"} == {
        page.locator(f"#{one}").evaluate(filters) for one in ("fitted", "reconstruction")
    }
