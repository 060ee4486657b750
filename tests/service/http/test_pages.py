from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.app import create_app
from service.http import pages
from service.http.pages import FOLDER, PAGE_POLICY
from service.settings import Settings

FILES = sorted(path.name for path in FOLDER.iterdir())
KINDS = {".css": "text/css", ".js": "javascript", ".svg": "image/svg+xml", ".html": "text/html"}


def test_the_root_is_the_playground(client: TestClient) -> None:
    """Who opens the service in a browser gets the page, under the strict policy."""
    answer = client.get("/", follow_redirects=False)
    assert (200, PAGE_POLICY) == (answer.status_code, answer.headers["content-security-policy"])
    assert "<title>CapsNet playground</title>" in answer.text


def test_the_documentation_is_served_where_it_was_built(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key, and with the scripts that its theme needs; the page links to it."""
    monkeypatch.setattr(pages, "DOCUMENTATION", site)
    client = TestClient(
        create_app(Settings(api_keys=(SecretStr("a-key-of-some-length"),))),
        base_url="http://localhost",
    )
    (link,) = re.findall(r'href="([^"]+)">Documentation<', client.get("/").text)
    answer = client.get(link)
    assert (200, "text/html") == (answer.status_code, answer.headers["content-type"][:9])
    assert "<title>CapsNet service</title>" in answer.text
    policy = answer.headers["content-security-policy"]
    assert PAGE_POLICY == policy.replace(" 'unsafe-inline'", "")
    for short in ("/documentation", "/documentation/"):
        assert (
            "/documentation/index.html"
            == client.get(short, follow_redirects=False).headers["location"]
        )


@pytest.mark.parametrize("name", FILES)
def test_the_page_s_files_have_the_types_that_browsers_need(name: str, client: TestClient) -> None:
    """Browsers that must not guess types run no script of another type."""
    answer = client.get(f"/static/{name}")
    assert 200 == answer.status_code
    assert KINDS[name[name.rindex(".") :]] in answer.headers["content-type"]
