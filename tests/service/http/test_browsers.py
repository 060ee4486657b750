from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.app import create_app
from service.http.pages import PAGE_POLICY
from service.settings import Settings
from tests.serving import serve

ORIGIN = "https://notebook.example"
KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def shared(settings: Settings) -> Iterator[TestClient]:
    """The service with a key, for pages of one other origin."""
    with serve(settings, cors_origins=(ORIGIN,), api_keys=(SecretStr(KEY),)) as client:
        yield client


def preflight(client: TestClient, origin: str) -> dict[str, str]:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "X-API-Key",
    }
    return dict(client.options("/classify", headers=headers).headers)


def test_other_origins_are_not_let_in_by_default(client: TestClient) -> None:
    """No header that would let a page of another site read an answer."""
    answer = client.get("/models", headers={"Origin": ORIGIN})
    assert [] == [name for name in answer.headers if name.startswith("access-control")]
    assert "access-control-allow-origin" not in preflight(client, ORIGIN)


def test_a_named_origin_is_let_in(shared: TestClient) -> None:
    """Its pages may ask with a key and read what the answer's headers say."""
    allowed = preflight(shared, ORIGIN)
    assert ORIGIN == allowed["access-control-allow-origin"]
    assert "X-API-Key" in allowed["access-control-allow-headers"]
    answer = shared.get("/models", headers={"Origin": ORIGIN, "X-API-Key": KEY})
    assert (200, ORIGIN) == (answer.status_code, answer.headers["access-control-allow-origin"])
    exposed = answer.headers["access-control-expose-headers"]
    own = {"X-Request-ID", "X-Model", "X-Notes", "Server-Timing", "Retry-After"}
    assert own | {"Inference-Header-Content-Length"} == set(exposed.split(", "))


@pytest.mark.parametrize("path", ["/livez", "/models", "/docs", "/metrics", "/nowhere"])
def test_no_answer_may_be_taken_for_another_type(path: str, client: TestClient) -> None:
    """Browsers must not guess types, of errors either."""
    assert "nosniff" == client.get(path).headers["x-content-type-options"]


@pytest.mark.parametrize("path", ["/", "/static/index.html"])
def test_a_page_may_use_its_own_files_alone(path: str, client: TestClient) -> None:
    """It gets the strict policy, is framed by nobody and sends no referrer."""
    headers = client.get(path).headers
    assert PAGE_POLICY == headers["content-security-policy"]
    assert "DENY" == headers["x-frame-options"]
    assert "no-referrer" == headers["referrer-policy"]
    assert "same-origin" == headers["cross-origin-opener-policy"]
    assert "unsafe" not in PAGE_POLICY


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("localhost.", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 400),
        ("localhost.evil.example:8000", 400),
        ("127.0.0.1.evil.example", 400),
    ],
)
def test_a_service_on_loopback_answers_to_loopback_names(
    host: str, status: int, client: TestClient
) -> None:
    """A page whose name was rebound to this address keeps its own name in `Host`."""
    assert status == client.get("/livez", headers={"Host": host}).status_code


@pytest.mark.parametrize(
    ("changes", "host", "status"),
    [
        ({"allowed_hosts": ("capsules.example",)}, "capsules.example", 200),
        ({"allowed_hosts": ("capsules.example",)}, "localhost", 400),
        ({"allowed_hosts": ("*",)}, "evil.example", 200),
        ({"host": "0.0.0.0"}, "evil.example", 200),  # noqa: S104  not bound here
        ({"host": "::1"}, "evil.example", 400),
    ],
)
def test_allowed_hosts_are_a_setting(changes: dict[str, Any], host: str, status: int) -> None:
    """A service on another address answers to any name, unless the setting says otherwise."""
    client = TestClient(create_app(Settings(**changes)))
    assert status == client.get("/livez", headers={"Host": host}).status_code


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Sec-Fetch-Site": "none"}, 200),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, 200),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
    ],
)
def test_pages_of_other_sites_make_nothing_compute(
    method: str, headers: dict[str, str], status: int
) -> None:
    """Unless CORS allows their origin; a link to this service is followed."""
    app = create_app(Settings(cors_origins=(ORIGIN,)))
    client = TestClient(app, base_url="http://localhost")
    answer = client.request(method, "/" if status == 200 else "/classify", headers=headers)
    assert status == answer.status_code
    if status != 200:
        assert "urn:capsnet:problem:cross-site" == answer.json()["type"]
