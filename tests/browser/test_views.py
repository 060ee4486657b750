"""Views that look further: next to the prediction, behind a switch, and in lenses of their own."""

from __future__ import annotations

from typing import Any

from service.pictures import SAMPLES
from tests.browser.playground import Playground

NATURAL = "image => image.naturalWidth"


def test_novelty_stands_below_the_prediction(playground: Playground) -> None:
    """The score with its threshold."""
    playground.take_sample(4)
    assert ", threshold 0.9" in playground.page.locator("#novelty").inner_text()


def test_routing_can_be_switched_off(playground: Playground) -> None:
    """A figure then shows the answers with other couplings; agreement and entropy are explained."""
    playground.take_sample(4)
    playground.open_tab("Routing")
    explained = playground.page.locator("#routing").get_by_text("Agreement:").inner_text()
    assert "point the same way" in explained
    assert "Entropy:" in explained
    switch = playground.page.get_by_role("switch", name="routing")
    assert switch.is_checked()
    switch.uncheck()
    off = playground.page.locator(".switched")
    drawn = off.get_by_role("img", name="the answer with other couplings")
    drawn.wait_for()
    switch.check()
    drawn.wait_for(state="detached")


def test_each_view_has_a_lens(playground: Playground) -> None:
    """With the figure that the service draws, and a second picture for a morph."""
    playground.take_sample(4)
    for view in ("Equivariance", "Occlusion", "Rivals", "Neighbours", "Morph"):
        playground.open_tab(view)
        drawn = playground.page.get_by_role("img", name=f"{view}: 4")
        drawn.wait_for()
        assert drawn.evaluate(NATURAL) > 400
    choice = playground.page.get_by_label("second picture")
    assert "prototype 1 of 4" == choice.locator("option:checked").inner_text()


def test_a_view_of_another_day_is_shown_without_a_line_of_script(playground: Playground) -> None:
    """Its name, its parameters and its drawing are all that a lens needs."""
    page = playground.page

    def add_view(route: Any) -> None:
        document = route.fetch().json()
        operation = {**document["paths"]["/rivals"]["post"], "operationId": "fading"}
        operation["parameters"] = []
        document["paths"]["/fading"] = {"post": operation}
        route.fulfill(json=document)

    page.route("**/openapi.json", add_view)
    page.route(
        "**/fading*",
        lambda route: route.fulfill(path=SAMPLES / "7.png", content_type="image/png"),
    )
    page.reload()
    page.locator("#lengths li").first.wait_for()
    playground.open_tab("Fading")
    assert 28 == page.get_by_role("img", name="Fading: 5").evaluate(NATURAL)


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
    assert not page.locator("#view-occlusion .drawn").count()
    fill(playground, "patch", "8")
    page.locator("#view-occlusion .drawn img").wait_for()
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
