from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from service.http.middleware import PAGE_POLICY
from service.http.pages import FOLDER

FILES = sorted(path.name for path in FOLDER.iterdir())
KINDS = {".css": "text/css", ".js": "javascript", ".svg": "image/svg+xml", ".html": "text/html"}


def test_the_root_is_the_playground(client: TestClient) -> None:
    """Who opens the service in a browser gets the page, under the strict policy."""
    answer = client.get("/", follow_redirects=False)
    assert (200, PAGE_POLICY) == (answer.status_code, answer.headers["content-security-policy"])
    assert "<title>CapsNet playground</title>" in answer.text


@pytest.mark.parametrize("name", FILES)
def test_the_page_s_files_have_the_types_that_browsers_need(name: str, client: TestClient) -> None:
    """Browsers that are told not to guess run no script of another type."""
    answer = client.get(f"/static/{name}")
    assert 200 == answer.status_code
    assert KINDS[name[name.rindex(".") :]] in answer.headers["content-type"]


def test_copies_are_used_only_while_they_are_current(client: TestClient) -> None:
    """Modules of two releases never meet: browsers ask, and are told that nothing changed."""
    fresh = client.get("/static/main.js")
    assert "no-cache" == fresh.headers["cache-control"]
    again = client.get("/static/main.js", headers={"If-None-Match": fresh.headers["etag"]})
    assert 304 == again.status_code


@pytest.mark.parametrize("name", FILES)
def test_the_page_needs_no_other_host_and_no_inline_code(name: str) -> None:
    """Nothing that the policy would refuse is in any file."""
    text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert [] == re.findall(r"https?://|//\w+\.\w+/", text)
    if name.endswith(".html"):
        assert [] == re.findall(r"<script(?![^>]*src=)|<style|\s(?:style|on\w+)=", text)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_modules_are_short(name: str) -> None:
    """A module is read in one sitting."""
    assert len((FOLDER / name).read_text().splitlines()) <= 200
