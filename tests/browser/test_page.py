from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.playground import Playground

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
    """Lengths as bars and text, the fitted picture, and that of the longest or a chosen class."""
    playground.take_sample(4)
    assert "4" == playground.label
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
    assert re.search(r"class: .\d+ to \d+ degrees", page.locator("#directions").inner_text())
    assert "a 5, slanted" in page.locator("#sentence").inner_text()
    before = float(slant.get_attribute("aria-valuetext").split()[0])
    slant.fill("1")
    value = page.locator("output[for=direction-d1]", has_text="drawn")
    value.wait_for()
    asked, drawn = map(float, re.findall(r"-?[\d.]+", value.inner_text()))
    assert asked > before + 5
    assert abs(asked - drawn) < 5


def test_a_file_that_is_no_picture_is_refused_aloud(playground: Playground) -> None:
    """The service's own words appear where screen readers announce them."""
    text = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"seven"}
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
