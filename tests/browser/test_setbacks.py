"""What the page does after something went wrong, or was wanted no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.playground import Playground

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
