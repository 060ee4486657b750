from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.http.keys import Access, Permission
from service.http.pages import StaticMount
from service.http.route import Route
from service.pictures import SAMPLES
from service.settings import Settings, SettingsError
from tests.serving import serve

FIRST, SECOND = "the-first-key-of-two", "the-second-key-of-two"
SEVEN = {"file": (SAMPLES / "7.png").read_bytes()}
GUARDED = [
    "/models",
    "/models/mnist",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/nowhere",
    "/static-offline-docs/swagger-ui.css",
    "/v1/models",
    "/staticx",
    "/models/static/",
    "/livez/",
]
OPEN = {
    "/",
    "/documentation",
    "/documentation/",
    "/livez",
    "/readyz",
    "/static",
    "/v2/health/live",
    "/v2/health/ready",
}


@pytest.fixture(scope="module")
def guarded(settings: Settings) -> Iterator[TestClient]:
    """The service with two keys."""
    with serve(settings, api_keys=(SecretStr(FIRST), SecretStr(SECOND))) as client:
        yield client


@pytest.mark.parametrize("key", [FIRST, SECOND])
@pytest.mark.parametrize(
    "header",
    [
        "X-API-Key: {}",
        "Authorization: Bearer {}",
        "authorization: bearer {}",
        "Authorization: Bearer   {}",
    ],
)
def test_each_key_opens_in_each_way(header: str, key: str, guarded: TestClient) -> None:
    """Any of the keys will do, in either header."""
    name, _, value = header.format(key).partition(": ")
    assert 200 == guarded.post("/classify", files=SEVEN, headers={name: value}).status_code


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"X-API-Key": ""}, id="empty"),
        pytest.param({"X-API-Key": FIRST[:-1]}, id="cut"),
        pytest.param({"X-API-Key": f"{FIRST}{SECOND}"}, id="two at once"),
        pytest.param({"X-API-Key": "é".encode()}, id="not ASCII"),
        pytest.param({"Authorization": FIRST}, id="without its scheme"),
        pytest.param({"Authorization": f"Basic {FIRST}"}, id="with another scheme"),
    ],
)
def test_nothing_else_does(headers: dict[str, str], guarded: TestClient) -> None:
    """Without a key, or with a wrong one, a request is a 401 that says how to do better."""
    answer = guarded.post("/classify", files=SEVEN, headers=headers)
    assert 401 == answer.status_code
    assert "application/problem+json" == answer.headers["content-type"]
    assert "urn:capsnet:problem:unauthorized" == answer.json()["type"]
    assert answer.headers["www-authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("path", GUARDED)
def test_everything_is_guarded(path: str, guarded: TestClient) -> None:
    """Reading needs a key too, and no answer tells whether a path exists."""
    assert 401 == guarded.get(path).status_code
    assert 401 != guarded.get(path, headers={"X-API-Key": FIRST}).status_code


def test_keys_come_from_the_file_too(tmp_path: Path) -> None:
    """One a line; comments and empty lines are no keys."""
    file = tmp_path / "keys"
    file.write_text(f"# for the curious\n\n  {SECOND}\n# for others\n{'x' * 16}\r\n")
    keys = Access(Settings(api_keys=(SecretStr(FIRST),), api_keys_file=file)).api
    digests = {hashlib.sha256(key.encode()).digest() for key in (FIRST, SECOND, "x" * 16)}
    assert digests == keys


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("# nothing but a comment\n", "is empty"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_keys_is_refused(content: str | None, reason: str, tmp_path: Path) -> None:
    """A key file without keys is refused, because the service would be open to all."""
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=f"the file of API keys {reason}"):
        Access(Settings(api_keys_file=file))


@pytest.mark.parametrize(
    "key", ["x" * 15, "", "a key with some spaces", "x" * 16 + " y", "ключ-ключ-ключ-ключ"]
)
def test_an_unfit_key_is_refused_unseen(key: str) -> None:
    """Too short to be secret, or not to be sent in a header; the message does not repeat it."""
    with pytest.raises(SettingsError, match="API key 2 is not 16 or more") as refusal:
        Access(Settings(api_keys=(SecretStr(FIRST), SecretStr(key))))
    assert not key or key not in str(refusal.value)


ADMIN = "the-admin-s-own-key"


@pytest.fixture(scope="module")
def administered(settings: Settings) -> Iterator[TestClient]:
    """The service with an API key and an admin key."""
    keys = {"api_keys": (SecretStr(FIRST),), "admin_keys": (SecretStr(ADMIN),)}
    with serve(settings, **keys) as client:
        yield client


@pytest.mark.parametrize(
    ("key", "reload", "read"),
    [(None, 401, 401), (SECOND, 401, 401), (FIRST, 403, 200), (ADMIN, 409, 200)],
)
def test_only_an_admin_key_reloads(
    key: str | None, reload: int, read: int, administered: TestClient
) -> None:
    """An API key is good for all else; nobody reloads where there is no supervisor."""
    headers = {"X-API-Key": key} if key else {}
    for path in ("/models/reload", "/v1/models/reload"):
        assert reload == administered.post(path, headers=headers).status_code
    assert read == administered.get("/models", headers=headers).status_code


@pytest.mark.parametrize("key", [None, FIRST])
@pytest.mark.parametrize("path", ["/models/reload%0A", "/v1/models/reload%0a", "/models/reload%0d"])
def test_a_line_break_opens_no_door(path: str, key: str | None, administered: TestClient) -> None:
    """A pattern's end matches before a line break too: such paths are refused before all else."""
    headers = {"X-API-Key": key} if key else {}
    answer = administered.post(path, headers=headers)
    assert (400, "urn:capsnet:problem:malformed-request") == (
        answer.status_code,
        answer.json()["type"],
    )


def test_only_these_routes_are_open(administered: TestClient) -> None:
    """Every route, included router and mount says who may call it; the document says so too."""
    app = administered.app
    assert isinstance(app, FastAPI)
    permissions = {getattr(one, "path", ""): vars(one).get("permission") for one in app.routes}
    permissions |= dict.fromkeys(("/static", "/documentation"), StaticMount.permission)
    assert set(get_args(Permission)) == set(permissions.values())
    assert OPEN == {path for path, permission in permissions.items() if permission == "public"}
    document = administered.get("/openapi.json", headers={"X-API-Key": ADMIN}).json()
    for route in app.routes:
        if isinstance(route, Route) and route.include_in_schema:
            operation = document["paths"][route.path][min(route.methods or ()).lower()]
            assert (route.permission != "public") == ("security" in operation)


async def answer(_request: Request) -> Response:
    return Response()


@pytest.mark.parametrize("guard", ["guarded", "client"], ids=["API keys", "no keys"])
def test_without_admin_keys_nothing_is_reloaded_over_http(
    guard: str, request: pytest.FixtureRequest
) -> None:
    """The answer is a sentence that says what to set."""
    client: TestClient = request.getfixturevalue(guard)
    answer = client.post("/models/reload", headers={"X-API-Key": FIRST})
    assert 403 == answer.status_code
    assert "no admin key is set: set CAPSNET_ADMIN_KEYS" in answer.json()["detail"]
