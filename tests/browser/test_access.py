"""What the page does when the service wants a key, is busy, or is not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from service.settings import Settings
from tests.browser.playground import Playground, open_playground
from tests.processes import SOURCE, SlowStorage, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """A service that wants a key."""
    environment = {
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_WORKERS": "1",
        "CAPSNET_API_KEYS": json.dumps([KEY]),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


def test_a_key_is_asked_for_and_sent(browser: Browser, guarded_url: str) -> None:
    """The page loads without, asks once more if the key is wrong, and keeps the right one."""
    with open_playground(browser, guarded_url, ready=False) as playground:
        for key in ("not-the-right-one", "a-key-with-an-ellipsis…", KEY):
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


def test_a_service_that_starts_is_waited_for(browser: Browser, tmp_path: Path) -> None:
    """The page is there at once, says what it waits for, and goes on when bundles are loaded."""
    bundle = tmp_path / "bundles" / "mnist-compact"
    shutil.copytree(Settings().bundles / bundle.name, bundle)
    storage = SlowStorage(tmp_path)
    storage.hold()
    environment = {
        **storage.environment,
        "CAPSNET_BUNDLES": str(bundle.parent),
        "CAPSNET_DEFAULT_MODEL": bundle.name,
        "CAPSNET_WORKERS": "1",
    }
    with (
        running(lambda _environment: SOURCE, environment, probe="/livez") as (_process, client),
        open_playground(browser, str(client.base_url), ready=False) as playground,
    ):
        notice = playground.page.get_by_role("status")
        notice.filter(has_text="The service is starting. Trying again in").wait_for()
        storage.release()
        playground.take_sample(3)
        assert "3" == playground.label
        assert "" == playground.page.locator("#notice").inner_text()
        assert all("503" in complaint for complaint in playground.complaints)


def test_a_service_that_is_gone_is_named_until_it_is_back(playground: Playground) -> None:
    """No answer at all is said in words, too; what was asked for is answered after a restart."""
    playground.page.route("**/classify*", lambda route: route.abort())
    playground.page.locator("#pad").get_by_role("button", name="Sample 3").click()
    notice = playground.page.get_by_role("status")
    notice.filter(has_text="The service does not answer. Trying again in").wait_for()
    playground.page.unroute("**/classify*")
    playground.page.locator("#verdict strong", has_text="3").wait_for()
    assert "" == playground.page.locator("#notice").inner_text()
    assert all("ERR_FAILED" in complaint for complaint in playground.complaints)
    playground.complaints.clear()
