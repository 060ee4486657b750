"""The page of one network: the picture, the pose, the lenses, and what fails."""

from __future__ import annotations

import re
from typing import Any

import pytest

from service.pictures import SAMPLES
from tests.browser.playground import DIGITS, Playground

pytestmark = pytest.mark.browser


def hold(playground: Playground, pattern: str) -> list[Any]:
    """The requests to some address, which are held back from now on."""
    held: list[Any] = []

    def keep(route: Any) -> None:
        held.append(route)

    playground.page.route(pattern, keep)
    return held


def reconstruction(playground: Playground) -> str:
    """The address of the reconstruction, which holds all its pixels."""
    address = playground.page.locator("#reconstruction").get_attribute("src")
    assert address is not None
    assert address.startswith("data:image/png;base64,")
    return address


def test_the_page_opens_with_a_picture(playground: Playground) -> None:
    """A sample is classified and reconstructed, its sliders move it, and its licence is shown."""
    page = playground.page
    assert "5" == playground.label
    assert page.get_by_role("img", name="a sample: 5").is_visible()
    assert page.get_by_role("img", name="reconstruction of class 5").is_visible()
    assert "5: MNIST, training split, CC BY-SA 3.0" == page.locator("#pad .credit").inner_text()
    playground.show_numbers()
    with page.expect_response("**/decode*"):
        page.locator("#dimension-0").fill("0.25")
    playground.clear()
    assert "?" == page.locator("#verdict").inner_text()


def test_a_sample_is_encoded_and_reconstructed(playground: Playground) -> None:
    """Lengths, novelty, the fitted picture, and that of the longest or a chosen class."""
    playground.take_sample(4)
    assert "4" == playground.label
    assert ", threshold 0.9" in playground.page.locator("#novelty").inner_text()
    lengths = playground.page.locator("#lengths .value").all_inner_texts()
    assert 10 == len(lengths)
    assert 4 == max(range(10), key=lambda label: float(lengths[label]))
    before = reconstruction(playground)
    assert before != playground.page.locator("#fitted").get_attribute("src")
    playground.page.get_by_label("reconstructed as").select_option("9")
    playground.settle()
    assert before != reconstruction(playground)


def test_a_slider_s_late_answer_does_not_draw_over_another_digit(playground: Playground) -> None:
    """The digit that is reconstructed is the one that was taken after the slider was moved."""
    page = playground.page
    playground.take_sample(7)
    expected = reconstruction(playground)
    playground.take_sample(4)
    late = hold(playground, "**/decode*")
    with page.expect_request("**/decode*"):
        page.get_by_role("slider").first.fill("0.2")
    playground.take_sample(7)
    with page.expect_response("**/decode*") as response:
        late[0].continue_()
    response.value.finished()
    page.wait_for_timeout(100)
    assert expected == reconstruction(playground)


def test_sliders_move_a_pose_along_directions(playground: Playground) -> None:
    """They tell the value, the value on the drawing and the range; three lie by the drawing."""
    page = playground.page
    playground.take_sample(5)
    slant = page.get_by_role("slider", name="slant")
    slant.wait_for()
    assert 3 == page.locator("#directions input").count()
    assert re.search(r"usual: .\d+ to \d+ degrees", page.locator("#directions").inner_text())
    assert "a 5, slanted" in page.locator("#sentence").inner_text()
    before = float(str(slant.get_attribute("aria-valuetext")).split()[0])
    slant.fill("1")
    value = page.locator("output[for=direction-d1]", has_text="drawn")
    value.wait_for()
    asked, drawn = map(float, re.findall(r"-?[\d.]+", value.inner_text()))
    assert asked > before + 5
    assert abs(asked - drawn) < 5


def test_a_file_that_is_no_picture_is_refused_aloud(playground: Playground) -> None:
    """The service's own words appear where screen readers announce them."""
    text: Any = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"seven"}
    playground.page.locator("#pad input[type=file]").set_input_files(text)
    notice = playground.page.get_by_role("status").filter(has_text="format")
    notice.wait_for()
    playground.settle()
    assert "?" == playground.page.locator("#verdict").inner_text()
    playground.take_sample(7)
    assert "" == playground.page.locator("#notice").inner_text()
    assert [] != playground.complaints  # Chromium's own, of two answers with status 415
    assert all("415" in complaint for complaint in playground.complaints)
    playground.complaints.clear()


def test_drawn_digits_are_read(playground: Playground) -> None:
    """Each digit that is drawn with the mouse is named."""
    for digit, shape in DIGITS.items():
        playground.draw(shape)
        assert str(digit) == playground.label
        playground.clear()


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
    """The slider goes through the iterations, and the cells change with it.

    Switched off, a figure shows the answers with other couplings. Agreement and entropy are
    explained.
    """
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


NATURAL = "image => image.naturalWidth"


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


BUSY = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"title": "nobody has time"}}


def expect_complaints(playground: Playground, text: str) -> None:
    """The browser says in its console that requests failed; that is right, and all."""
    assert playground.complaints
    assert all(text in complaint for complaint in playground.complaints)
    playground.complaints.clear()


def test_a_picture_that_was_cleared_is_not_sent_again(playground: Playground) -> None:
    """Nor is it waited for: the pad is empty, and the notice gone."""
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(**BUSY)

    playground.page.route("**/classify*", refuse)
    notice = playground.page.get_by_role("status")
    playground.page.locator("#pad").get_by_role("button", name="Sample 3").click()
    notice.filter(has_text="nobody has time").first.wait_for()
    playground.clear()
    count = len(asked)
    playground.page.wait_for_timeout(1500)
    assert count == len(asked)
    assert "" == playground.page.locator("#notice").inner_text()
    expect_complaints(playground, "503")
