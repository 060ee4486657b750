"""Views that look further: next to the prediction, behind a switch, and in lenses of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.playground import Playground

NATURAL = "image => image.naturalWidth"
SIZES = ("patch", "stride")
STRONGEST = "cells => Math.max(...[...cells.children].map(({ style }) => Number(style.opacity)))"
"""How opaque the strongest colour of a map is."""


def test_neighbours_and_novelty_stand_beside_the_prediction(playground: Playground) -> None:
    """Training images of the class that is looked at, and the score with its threshold."""
    playground.take_sample(4)
    near = playground.page.locator("#near")
    near.get_by_text("Nearest training images of 4").wait_for()
    assert 5 == near.locator("img").count()
    assert 28 == near.locator("img").first.evaluate(NATURAL)
    assert ", threshold 0.9" in playground.page.locator("#novelty").inner_text()


def test_routing_can_be_switched_off(playground: Playground) -> None:
    """Then each kind of couplings has its bars; agreement and entropy are explained before."""
    playground.take_sample(4)
    playground.open_tab("Routing")
    explained = playground.page.locator("#routing").get_by_text("Agreement:").inner_text()
    assert "point the same way" in explained
    assert "Entropy:" in explained
    switch = playground.page.get_by_role("switch", name="routing")
    assert switch.is_checked()
    switch.uncheck()
    off = playground.page.locator(".switched")
    variants = [
        "as routed",
        "uniform couplings (iteration 1)",
        "after one update (iteration 2)",
    ]
    off.get_by_text(f"The answer stays: {': 4; '.join(variants)}: 4.").wait_for()
    assert variants == off.locator("figcaption").all_inner_texts()
    switch.check()
    off.locator("figure").first.wait_for(state="detached")


def test_each_view_has_a_lens(playground: Playground) -> None:
    """Pictures and curves have the page's colours; a morph begins with a prototype."""
    playground.take_sample(4)
    for view, images in (("Rivals", 2), ("Neighbours", 10), ("Morph", 10)):
        playground.open_tab(view)
        shown = playground.page.locator(f"#view-{view.lower()} .gallery img.pixels")
        shown.last.wait_for()
        assert images == shown.count()
        assert 28 == shown.last.evaluate(NATURAL)
    assert playground.page.locator("#view-morph .curve").is_visible()
    choice = playground.page.get_by_label("second picture")
    assert "prototype 1 of 4" == choice.locator("option:checked").inner_text()


def test_a_view_of_another_day_is_shown_without_a_line_of_script(playground: Playground) -> None:
    """Its answer is shown by kind: pictures, a curve over the first list, and figures."""
    page = playground.page

    def add_view(route: Any) -> None:
        document = route.fetch().json()
        operation = {**document["paths"]["/rivals"]["post"], "operationId": "fading"}
        operation["parameters"] = []
        document["paths"]["/fading"] = {"post": operation}
        route.fulfill(json=document)

    answer = {
        "label": 5,
        "class_name": "5",
        "factors": [1.0, 0.5],
        "lengths": [0.9, 0.3],
        "faintest": page.locator("#reconstruction").get_attribute("src"),
        "half_at": 0.7,
    }
    page.route("**/openapi.json", add_view)
    page.route("**/fading*", lambda route: route.fulfill(json=answer))
    page.reload()
    page.locator("#lengths li").first.wait_for()
    playground.open_tab("Fading")
    panel = page.locator("#view-fading")
    assert 1 == panel.locator(".gallery img").count()
    assert "from factors 1 to factors 0.5" in str(
        panel.get_by_role("img", name="lengths").get_attribute("aria-label")
    )
    assert ["half at", "0.70"] == panel.locator("dt, dd").all_inner_texts()


def test_occlusion_has_one_scale_and_says_when_nothing_changes(playground: Playground) -> None:
    """A small patch is drawn in paler colours than a large one; small numbers are no finding."""
    page = playground.page
    playground.take_sample(4)
    playground.open_tab("Occlusion")
    assert ["6", "2"] == [page.get_by_label(name).get_attribute("placeholder") for name in SIZES]
    assert "`" not in page.locator("#view-occlusion").inner_text()
    finding = page.locator("#view-occlusion .finding")
    assert "With the patch, it lies between" in finding.inner_text()
    strongest = page.locator("#view-occlusion .cells").evaluate(STRONGEST)
    fill(playground, "stride", "2")
    fill(playground, "patch", "2")
    assert strongest > page.locator("#view-occlusion .cells").evaluate(STRONGEST)
    page.route("**/occlusion*", unchanged)
    fill(playground, "patch", "5")
    finding.filter(has_text="Nothing changes").wait_for()
    assert page.locator("#view-occlusion .cells").evaluate(STRONGEST) < 0.16


@pytest.mark.parametrize(("tab", "part"), [("Routing", ".focus"), ("Occlusion", "figure")])
def test_maps_follow_the_page_into_the_dark(tab: str, part: str, playground: Playground) -> None:
    """A map that is on the page in the evening has the colours of its legend."""
    playground.take_sample(4)
    playground.open_tab(tab)
    assert playground.follows_the_dark(f"[role=tabpanel] [role=tabpanel]:not([hidden]) {part}")


def test_an_error_text_goes_when_the_value_is_corrected(playground: Playground) -> None:
    """It stands below the field that is to blame, whose bounds and unit are written next to it."""
    page = playground.page
    playground.take_sample(4)
    playground.open_tab("Occlusion")
    fill(playground, "patch", "40")
    field = page.get_by_label("patch")
    wrong = page.locator("#view-occlusion-patch-wrong")
    wrong.filter(has_text="larger than an image").wait_for()
    assert "true" == field.get_attribute("aria-invalid")
    assert not page.locator("#view-occlusion .cells").count()
    fill(playground, "patch", "8")
    page.locator("#view-occlusion .cells").wait_for()
    assert "" == wrong.inner_text()
    assert field.get_attribute("aria-invalid") is None
    fill(playground, "patch", "0")
    assert "greater than or equal to 1" in wrong.inner_text()
    assert "patch 1 to 64" in page.locator("label[for=view-occlusion-patch]").inner_text()
    assert all("422" in complaint for complaint in playground.complaints)
    playground.complaints.clear()


def fill(playground: Playground, name: str, value: str) -> None:
    """Type a value and leave the field."""
    field = playground.page.get_by_label(name)
    field.fill(value)
    field.press("Tab")
    playground.settle()


def unchanged(route: Any) -> None:
    """The service's answer, where no patch changes anything that two decimals show."""
    answer = route.fetch().json()
    answer["map"] = [[0.002 * (-1) ** column for column in range(28)] for _ in range(28)]
    route.fulfill(json=answer)
