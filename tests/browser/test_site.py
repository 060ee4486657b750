from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import Playground

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site_url(site: Path) -> Iterator[str]:
    """The documentation, served from its folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("page", ["index", "reference/api", "explanation/families", "results"])
def test_pages_are_whole(browser: Browser, site_url: str, page: str) -> None:
    """Every picture is there, no other host is asked, and nothing complains."""
    shown = Playground(browser.new_page())
    shown.page.goto(f"{site_url}/{page}.html", wait_until="networkidle")
    broken = "[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"
    assert [] == shown.page.evaluate(broken)
    assert ([], []) == (shown.foreign_requests, shown.complaints)
    shown.page.close()


def test_the_search_finds_a_setting(browser: Browser, site_url: str) -> None:
    """The index is part of the site."""
    shown = Playground(browser.new_page())
    shown.page.goto(f"{site_url}/index.html?q=CAPSNET_WORKERS")
    shown.page.locator(".md-search-result__link").first.wait_for(state="attached")
    assert [] == shown.foreign_requests
    shown.page.close()
