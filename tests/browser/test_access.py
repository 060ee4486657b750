"""What the page does when the service wants a key, is busy, or is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import Playground, open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.browser

KEY = "a-key-of-some-length"
BUSY = {"type": "urn:capsnet:problem:busy", "title": "Too much work is waiting", "status": 429}


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A service that wants a key."""
    environment = {
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_API_KEYS": json.dumps([KEY]),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


def test_a_key_is_asked_for_and_sent(browser: Browser, guarded_url: str) -> None:
    """The page loads without, asks once more if the key is wrong, and keeps the right one."""
    with open_playground(browser, guarded_url, ready=False) as playground:
        for key in ("not-the-right-one", KEY):
            field = playground.page.get_by_label("Key", exact=True)
            field.fill(key)
            field.press("Enter")
        playground.page.locator("#lengths li").first.wait_for()
        playground.take_sample(3)
        assert "3" == playground.label
        playground.page.reload()
        playground.take_sample(4)
        assert "4" == playground.label
        assert all("401" in complaint for complaint in playground.complaints)


def test_a_busy_service_is_asked_again_when_it_says(playground: Playground) -> None:
    """The page says that it waits, and goes on by itself after `Retry-After`."""

    def refuse_once(route: Route) -> None:
        route.fulfill(
            status=429,
            headers={"Retry-After": "2", "Content-Type": "application/problem+json"},
            body=json.dumps(BUSY),
        )

    playground.page.route("**/classify*", refuse_once, times=1)
    playground.page.locator("#pad").get_by_role("button", name="Sample 3").click()
    playground.page.get_by_role("status").filter(has_text="Trying again in").wait_for()
    playground.page.locator("#verdict strong").wait_for()
    assert "3" == playground.label
    assert "" == playground.page.locator("#notice").inner_text()
    assert all("429" in complaint for complaint in playground.complaints)
    playground.complaints.clear()


def test_a_service_that_is_gone_is_named(playground: Playground) -> None:
    """No answer at all is said in words, too."""
    playground.page.route("**/classify*", lambda route: route.abort())
    playground.take_sample(3)
    playground.page.get_by_role("status").filter(has_text="does not answer").wait_for()
    assert all("ERR_FAILED" in complaint for complaint in playground.complaints)
    playground.complaints.clear()
