"""What one sees has an address: others see the same, and Back returns to it."""

from __future__ import annotations

import pytest

from tests.browser.playground import Playground, open_playground

pytestmark = pytest.mark.browser

SEVEN = [[(0.25, 0.2), (0.75, 0.2), (0.45, 0.85)], [(0.4, 0.52), (0.72, 0.5)]]
STAND_IN = """() => {
  const clipboard = { writeText: async (text) => { window.copied = text; } };
  Object.defineProperty(navigator, "clipboard", { value: clipboard });
}"""
PIXELS = "document.querySelector('#pad canvas').toDataURL()"


def copy_link(playground: Playground) -> str:
    """Press the button, with a clipboard that needs no permission."""
    playground.page.evaluate(STAND_IN)
    playground.page.get_by_role("button", name="Copy link").click()
    playground.page.get_by_role("status").filter(has_text="Link copied").wait_for()
    return str(playground.page.evaluate("window.copied"))


def lengths(playground: Playground) -> list[str]:
    """As the bars say."""
    return playground.page.locator("#lengths .value").all_inner_texts()


def test_a_link_shows_a_drawing_and_all_that_was_chosen(playground: Playground) -> None:
    """The strokes, the class, the moved dimension and the tab, in a page of its own."""
    page = playground.page
    playground.draw(SEVEN)
    page.get_by_label("reconstructed as").select_option("9")
    playground.settle()
    playground.show_numbers()
    with page.expect_response("**/decode*"):
        page.locator("#dimension-2").fill("0.25")
    playground.open_tab("Equivariance")
    page.get_by_label("transform", exact=True).select_option("shift-x")
    playground.settle()
    link = copy_link(playground)
    assert len(link) < 1000
    browser = page.context.browser
    assert browser is not None
    with open_playground(browser, link) as other:
        other.page.locator("#verdict strong").wait_for()
        other.settle()
        assert lengths(playground) == lengths(other)
        assert page.evaluate(PIXELS) == other.page.evaluate(PIXELS)
        assert "9" == other.page.get_by_label("reconstructed as").input_value()
        moved = page.locator("#reconstruction").get_attribute("src")
        other.page.locator(f'#reconstruction[src="{moved}"]').wait_for()
        assert "shift-x" == other.page.get_by_label("transform", exact=True).input_value()
        other.open_tab("Pose")
        assert "+0.25" == other.page.locator("output[for=dimension-2]").inner_text()
        assert [] == other.complaints


def test_back_and_forward_go_through_what_was_shown(playground: Playground) -> None:
    """Pictures and tabs; a moved slider is no step of its own, and comes back with its picture."""
    page = playground.page
    playground.take_sample(3)
    steps = page.evaluate("history.length")
    playground.show_numbers()
    with page.expect_response("**/decode*"):
        page.locator("#dimension-0").press("ArrowRight")
    page.wait_for_url("**pose=0_1")
    for _ in range(9):
        page.locator("#dimension-0").press("ArrowRight")
    page.wait_for_url("**pose=0_10*")
    assert steps == page.evaluate("history.length")
    playground.take_sample(5)
    playground.open_tab("Sweep")
    page.go_back()
    page.locator("#pose").wait_for()
    page.go_back()
    page.locator('#pad img[alt="a sample: 3"]').wait_for()
    page.locator("output[for=dimension-0]", has_text="+0.1").wait_for()
    page.locator("#verdict strong", has_text="3").wait_for()
    page.go_forward()
    page.go_forward()
    page.locator("#sweep tbody tr").last.wait_for()
    page.locator("#verdict strong", has_text="5").wait_for()
