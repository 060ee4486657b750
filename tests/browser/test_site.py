from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.playground import Playground, open_playground
from tests.processes import SOURCE, patch_workers, running

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def service(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service with one network and the documentation, built elsewhere."""
    source = f"from service.http import pages; pages.DOCUMENTATION = pathlib.Path({str(site)!r})"
    environment = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MODELS": '["mnist-compact"]',
        **patch_workers(tmp_path_factory.mktemp("patch"), source),
    }
    with running(lambda _: SOURCE, environment) as (_, client):
        yield str(client.base_url)


def test_pages_are_whole(visitor: BrowserContext, service: str) -> None:
    """With every picture and the search; no other host is asked, and nothing complains."""
    shown = Playground(visitor.new_page())
    broken = "[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"
    for page in ("index", "reference/api", "explanation/families", "results"):
        shown.page.goto(f"{service}/documentation/{page}.html", wait_until="networkidle")
        assert [] == shown.page.evaluate(broken)
    assert ([], []) == (shown.foreign_requests, shown.complaints)
    shown.page.goto(f"{service}/documentation/index.html?q=CAPSNET_WORKERS")
    shown.page.locator(".md-search-result__link").first.wait_for(state="attached")
    assert [] == shown.foreign_requests
    shown.page.close()


def test_each_lens_links_to_its_paragraph_and_back(visitor: BrowserContext, service: str) -> None:
    """The paragraph exists, and its link opens the same lens on the port of the service."""
    with open_playground(visitor, service) as playground:
        page = playground.page
        playground.take_sample(4)
        tabs = page.get_by_role("tablist", name="Views").get_by_role("tab").all_inner_texts()
        lenses = [name for name in tabs if name and name != "Health"]  # it has a page of its own
        addresses = {}
        for lens in lenses:
            playground.open_tab(lens)
            link = page.get_by_role("link", name="How to read this")
            addresses[lens] = str(link.evaluate("link => link.href"))
        assert len(lenses) == len(addresses)  # no two tabs have the same name
        assert "Compare" not in lenses  # one network alone cannot be compared
        page.goto(addresses["Occlusion"])
        for address in addresses.values():
            _, _, paragraph = address.partition("#")
            assert page.locator(f"h2[id='{paragraph}']").count(), address
        page.locator("article a[href='/#view=view-occlusion']").click()
        page.locator("#view-occlusion .drawn img").wait_for()
        page.get_by_role("link", name="What is a capsule?").click()
        page.get_by_role("heading", name="Capsules in one page").wait_for()
        assert service.rstrip("/") == page.evaluate("location.origin")
