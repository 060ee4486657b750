"""A real Chromium on the page of a real service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import Playground, new_visitor, open_playground
from tests.processes import SOURCE, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

DISABLED = (
    "LocalNetworkAccessChecks",  # frames of made-up public sites
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),  # two more pages with each, which nobody sees
)
"""Of Chromium's features."""
MAX_BODY_BYTES = 1_000_000
"""Of all requests that the service takes in at once."""


@pytest.fixture(scope="session")
def service_url() -> Iterator[str]:
    """The service with one network, a quick one."""
    environment = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": '["mnist-compact"]',
        "CAPSNET_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
        "CAPSNET_MAX_WAITING_BYTES": str(4 * MAX_BODY_BYTES),
    }
    with running(lambda _environment: SOURCE, environment) as (_process, client):
        yield str(client.base_url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it; skips where it or what drives it is missing.

    For one module: while Playwright runs, nothing else in this process can have an event loop.
    """
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs the program chromium: install Debian's package of that name")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",  # tests run as root
                "--disable-gpu",  # on busy machines
                f"--disable-features={','.join(DISABLED)}",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visitor(browser: Browser) -> BrowserContext:
    """Someone at a desk; what Chromium sets up for a visitor takes longer than opening the page."""
    return new_visitor(browser)


@pytest.fixture
def playground(visitor: BrowserContext, service_url: str) -> Iterator[Playground]:
    """The page; a test fails if it complains in the console or asks another host."""
    with open_playground(visitor, service_url) as playground:
        yield playground
        assert [] == playground.complaints
        assert [] == playground.foreign_requests
