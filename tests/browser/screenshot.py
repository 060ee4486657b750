"""The tutorial's picture of the page: `python -m tests.browser.screenshot FILE`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.playground import DIGITS, open_playground
from tests.processes import SOURCE, running

WINDOW = {"width": 1200, "height": 1040}


def take(target: Path) -> None:
    """Draw a digit, make it thicker, and keep what is to be seen."""
    program = shutil.which("chromium")
    with (
        running(lambda _environment: SOURCE, {"CAPSNET_DEVICE": "cpu"}) as (_process, client),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        with open_playground(browser, str(client.base_url), viewport=WINDOW) as playground:
            playground.draw(DIGITS[3])
            slider = playground.page.get_by_role("slider", name="thickness").first
            with playground.page.expect_response("**/decode*"):
                slider.fill("1")
            slider.evaluate("element => element.blur()")
            playground.page.wait_for_timeout(500)  # transitions end
            target.parent.mkdir(parents=True, exist_ok=True)
            playground.page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
