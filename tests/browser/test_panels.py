from __future__ import annotations

import pytest

from tests.browser.playground import Playground

pytestmark = pytest.mark.browser

SHOWN = "element => element.complete && element.naturalWidth > 0"


def test_the_sweep_shows_every_direction(playground: Playground) -> None:
    """Rows with a name and a unit, of moved reconstructions; the middle of each is unmoved."""
    playground.take_sample(5)
    playground.open_tab("Sweep")
    rows = playground.page.locator("#sweep tbody tr")
    rows.last.wait_for()
    names = [row.locator("th").inner_text() for row in rows.all()]
    assert len(names) >= 5
    assert names[0].startswith("thickness ")
    assert names[0].endswith(" px")
    assert rows.first.locator("img").first.evaluate(SHOWN)
    reconstruction = playground.page.locator("#reconstruction").get_attribute("src")
    assert {reconstruction} == {
        row.locator(".unmoved img").get_attribute("src") for row in rows.all()
    }


def test_routing_shows_a_map_for_each_iteration(playground: Playground) -> None:
    """The slider goes through the iterations, and the cells change with it."""
    playground.take_sample(5)
    playground.open_tab("Routing")
    slider = playground.page.get_by_role("slider", name="iteration")
    cells = playground.page.locator(".focus .cells")
    last = cells.inner_html()
    assert "3 of 3" == slider.get_attribute("aria-valuetext")
    slider.press("ArrowLeft")
    assert "2 of 3" == slider.get_attribute("aria-valuetext")
    assert last != cells.inner_html()
    assert 10 == playground.page.locator(".maps figure").count()
    assert "2" == playground.page.locator(".facts .now th").inner_text()


def test_transforming_the_picture_draws_it_anew(playground: Playground) -> None:
    """A turn at first, or another transform."""
    page = playground.page
    playground.take_sample(5)
    playground.open_tab("Equivariance")
    before = playground.look("#view-equivariance .drawn").tobytes()
    with page.expect_response("**/equivariance*"):
        page.get_by_label("transform", exact=True).select_option("shift-x")
    playground.settle()
    assert before != playground.look("#view-equivariance .drawn").tobytes()


def test_what_fails_leaves_nothing_of_the_picture_before(playground: Playground) -> None:
    """A gateway's error without a title is said, and the next picture is looked at as ever."""
    playground.take_sample(5)
    playground.open_tab("Routing")
    support = playground.page.locator("#routing").get_by_text("support for 5")
    support.wait_for()
    playground.page.route(
        "**/routing*", lambda route: route.fulfill(status=502, json={"message": "bad gateway"})
    )
    playground.take_sample(8)
    playground.page.get_by_text("The service answered 502").wait_for()
    assert not support.count()
    playground.page.unroute("**/routing*")
    assert all("502" in complaint for complaint in playground.complaints)
    playground.complaints.clear()
    playground.take_sample(3)
    playground.page.locator("#routing").get_by_text("support for 3").wait_for()
