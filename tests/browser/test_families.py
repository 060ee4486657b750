"""Networks of other kinds than the first: other routing, none at all, photographs."""

from __future__ import annotations

import base64
import io
import json
import shutil
import time
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
from tests.figures import SIZE, draw_explained
from tests.health import add_health
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

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
    draw_explained(shared)
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


def slowly(route: Route) -> None:
    """Let a request go on after a while."""
    time.sleep(0.3)
    route.continue_()


@pytest.mark.parametrize(
    ("name", "words", "presence"),
    [
        ("tiny-dynamic", "routing by agreement", "length"),
        ("tiny-attention", "self-attention routing", "length"),
        ("tiny-shared", "shared-weight capsules", "length"),
        ("tiny-matrix", "matrix capsules with EM routing", "activation"),
        ("tiny-baseline", "convolutional network without capsules", "probability"),
    ],
)
def test_the_same_drawing_goes_to_every_family(
    name: str, words: str, presence: str, playground: Playground
) -> None:
    """The page says what kind of network it is, and what it takes the drawing for."""
    choose(playground, name)
    expected = f"{words}, trained on {name}: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert expected == playground.page.locator("#about").inner_text()
    assert playground.label in "0123456789"
    assert presence in playground.page.locator("#verdict").inner_text()


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
    page.get_by_role("img", name="probability of").wait_for()
    page.get_by_role("tab", name="Equivariance").press("ArrowRight")
    assert page.locator("#view-occlusion").is_visible()
    choose(playground, "tiny-dynamic")
    assert "" == page.locator("#missing").inner_text()
    shown = [tab.inner_text() for tab in tabs.all() if tab.is_visible()]
    own = ["Pose", "Sweep", "Routing", "Equivariance", "Occlusion", "Rivals", "Morph"]
    assert [*own, "Neighbours", "Health", "Compare"] == shown


def test_the_page_says_what_a_pose_explains_and_what_that_limits(playground: Playground) -> None:
    """In the lens Health; a note is above the views that need the decoder, and above no others."""
    page = playground.page
    choose(playground, "tiny-shared")
    assert not page.locator("#share").is_visible()
    playground.open_tab("Health")
    sentence = "A pose of 16 numbers explains 40 % of the variance of 1,200 images of another town."
    shown = page.locator("#share p").first.inner_text().replace("\u00a0", " ")
    assert f"{sentence} PCA of the same class with 16 numbers explains 70 %." == shown
    playground.open_tab("Pose")
    limits = page.locator("#limits")
    assert "shows little of the image except its class" in limits.inner_text()
    page.get_by_role("tab", name="Rivals").click()
    playground.settle()
    assert "the class of each image alone" in limits.inner_text()
    page.get_by_role("tab", name="Occlusion").click()
    playground.settle()
    assert not limits.is_visible()
    choose(playground, "tiny-attention")
    assert not page.locator("#share").is_visible()
    page.get_by_role("tab", name="Sweep").click()
    playground.settle()
    assert not limits.is_visible()


def test_a_figure_shows_what_a_pose_explains(playground: Playground) -> None:
    """With words for those who do not see it; it opens in its own size, by keyboard too."""
    page = playground.page
    choose(playground, "tiny-shared")
    playground.open_tab("Health")
    page.locator("#share").scroll_into_view_if_needed()
    image = page.get_by_role("img", name="images, below them their reconstructions from poses")
    page.wait_for_function("() => document.querySelector('#share img').naturalWidth")
    ratio = image.evaluate("element => element.clientWidth / element.clientHeight")
    assert SIZE[0] / SIZE[1] == pytest.approx(ratio, rel=0.02)
    caption = page.locator("#share figcaption").inner_text()
    assert "Bottom: PCA of the same class with 16 numbers." in caption
    page.locator("#share a").focus()
    with page.expect_popup() as opened:
        page.keyboard.press("Enter")
    opened.value.wait_for_load_state()
    drawn = opened.value.locator("img")
    assert SIZE[0] == drawn.evaluate("element => element.naturalWidth")
    opened.value.close()
    choose(playground, "tiny-attention")
    choose(playground, "tiny-shared")
    playground.open_tab("Health")
    page.locator("#share").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#share img').naturalWidth")
    assert 1 == sum("/figures/" in address for address in playground.requests)


def test_a_figure_is_asked_for_when_it_comes_into_view(browser: Browser, families_url: str) -> None:
    """Who does not open its lens does not wait for it, and nothing moves when it comes."""
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with open_playground(browser, families_url, **options) as playground:
        page = playground.page
        choose(playground, "tiny-shared")
        assert [] == [address for address in playground.requests if "/figures/" in address]
        playground.open_tab("Health")
        below = page.get_by_role("tablist", name="Views")
        place = "element => element.getBoundingClientRect().top + scrollY"
        before = below.evaluate(place)
        page.locator("#share").scroll_into_view_if_needed()
        page.wait_for_function("() => document.querySelector('#share img').naturalWidth")
        assert before == below.evaluate(place)
        assert 390 == page.evaluate("document.documentElement.scrollWidth")
        assert [] == playground.complaints


def test_a_figure_that_is_gone_leaves_the_sentence(playground: Playground) -> None:
    """The numbers stay, without a frame for what does not come."""
    page = playground.page
    page.route("**/figures/*.png", lambda route: route.fulfill(status=422, json={"title": "Gone"}))
    choose(playground, "tiny-shared")
    playground.open_tab("Health")
    page.locator("#share").scroll_into_view_if_needed()
    page.locator("#share a").wait_for(state="hidden")
    assert "Bottom" not in page.locator("#share").inner_text()
    assert page.get_by_text("PCA of the same class with 16 numbers explains").is_visible()
    playground.complaints.clear()  # Chromium names the status


def test_routing_of_one_iteration_has_no_slider(playground: Playground) -> None:
    """There is nothing to go through."""
    choose(playground, "tiny-attention")
    playground.open_tab("Routing")
    playground.page.locator("#routing .cells span").first.wait_for(state="attached")
    assert 1 == playground.page.locator("#routing .facts tbody tr").count()
    assert 0 == playground.page.get_by_role("slider", name="iteration").count()


def test_matrix_capsules_show_their_layers(playground: Playground) -> None:
    """A map for each capsule type, which changes with the iteration and is seen by night."""
    choose(playground, "tiny-matrix")
    playground.open_tab("Routing")
    layers = playground.page.locator("#routing .hidden-layer")
    assert [3, 2] == [layer.locator(".cells").count() for layer in layers.all()]
    first_type = "#routing .hidden-layer .paper"
    last = playground.look(first_type)
    playground.page.get_by_role("slider", name="iteration").press("ArrowLeft")
    assert last.tobytes() != playground.look(first_type).tobytes()
    assert playground.follows_the_dark(first_type)


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


def test_every_panel_works_for_photographs(playground: Playground) -> None:
    """Sliders, sweep, routing and curves of a network whose images are no squares."""
    page = playground.page
    choose(playground, "blocks")
    page.evaluate(HAND_OVER, ["drop", list(photo())])
    playground.settle()
    assert 16 == page.locator("#pose input").count()
    for tab, part in (("Sweep", ".sweep img"), ("Routing", ".cells"), ("Equivariance", ".curve")):
        playground.open_tab(tab)
        page.locator(part).first.wait_for(state="attached")
    box = page.locator("#reconstructed > .paper").bounding_box()
    assert box is not None
    assert 32 / 24 == pytest.approx(box["width"] / box["height"], abs=0.02)


def test_a_drawing_is_kept_while_a_network_for_photographs_is_looked_at(
    playground: Playground,
) -> None:
    """That one shows a sample of its own, however slow; back at the first, the drawing is there."""
    page, before = playground.page, playground.page.locator("#lengths .value").all_inner_texts()
    page.route("**/samples/*.png", slowly)
    choose(playground, "blocks")
    assert page.get_by_role("img", name="a sample: red 2").is_visible()
    assert ["red", "red 2"] == [
        one.get_attribute("title") for one in page.locator("#pad .samples button").all()
    ]
    choose(playground, "tiny-dynamic")
    assert before == page.locator("#lengths .value").all_inner_texts()
    page.go_back()
    page.get_by_role("img", name="a sample: red 2").wait_for()
