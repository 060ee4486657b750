"""What the page does after something went wrong, or was wanted no more."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from service.pictures import SAMPLES
from tests.browser.playground import Playground, open_playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

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


def test_a_page_that_found_no_service_asks_again(browser: Browser, service_url: str) -> None:
    """Once it answers, all is there, and no word of the failure."""
    with open_playground(browser, "about:blank", ready=False) as playground:
        playground.page.route("**/models", lambda route: route.abort())
        playground.page.goto(service_url)
        notice = playground.page.get_by_role("status")
        notice.filter(has_text="does not answer").first.wait_for()
        playground.page.unroute("**/models")
        playground.page.locator("#lengths li").first.wait_for()
        playground.take_sample(3)
        assert "3" == playground.label
        assert "" == playground.page.locator("#notice").inner_text()
        expect_complaints(playground, "ERR_FAILED")


def test_a_picture_of_too_many_pixels_is_shrunk(playground: Playground) -> None:
    """The service would refuse its 27 megapixels; the same seven is read all the same."""
    with Image.open(SAMPLES / "7.png") as seven:
        large = seven.convert("L").resize((5200, 5200))
    file = io.BytesIO()
    large.save(file, "PNG")
    sent = {"name": "seven.png", "mimeType": "image/png", "buffer": file.getvalue()}
    playground.page.locator("#pad input[type=file]").set_input_files(sent)
    playground.page.locator("#verdict strong", has_text="7").wait_for()


def test_the_same_file_can_be_chosen_again(playground: Playground) -> None:
    """After the pad was cleared."""
    for _ in range(2):
        with playground.page.expect_file_chooser() as chooser:
            playground.page.locator("#pad").get_by_role("button", name="Choose a file").click()
        chooser.value.set_files(SAMPLES / "7.png")
        playground.page.locator("#verdict strong", has_text="7").wait_for()
        playground.clear()
