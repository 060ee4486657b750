"""Views that look further: beside the prediction, behind a switch, and in lenses of their own."""

from __future__ import annotations

from tests.browser.playground import Playground

NATURAL = "image => image.naturalWidth"


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
    off.get_by_text("The answer stays: as routed: 4; uniform couplings: 4").wait_for()
    assert ["as routed", "uniform couplings", "after one iteration"] == (
        off.locator("figcaption").all_inner_texts()
    )
    switch.check()
    off.locator("figure").first.wait_for(state="detached")


def test_each_view_has_a_lens(playground: Playground) -> None:
    """Which shows what the service draws; a morph begins with a prototype of the class."""
    playground.take_sample(4)
    for view in ("Occlusion", "Trajectory", "Rivals", "Neighbours", "Morph"):
        playground.open_tab(view)
        drawn = playground.page.locator(f"#view-{view.lower()} img.drawn")
        drawn.wait_for()
        assert drawn.evaluate(NATURAL) > 400
    choice = playground.page.get_by_label("second picture")
    assert "prototype 1 of 4" == choice.locator("option:checked").inner_text()
