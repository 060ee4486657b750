from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from service.settings import Settings

Predictions = list[dict[str, Any]]
JSON = {"content-type": "application/json"}


def text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def predictions(client: TestClient, **request: Any) -> Predictions:
    answer = client.post("/classify", **request)
    assert 200 == answer.status_code, answer.text
    found: Predictions = answer.json()["predictions"]
    return found


def refusal(client: TestClient, **request: Any) -> tuple[int, str, str | None]:
    """Status, the end of the problem's type, and the parameter at fault."""
    answer = client.post("/classify", **request)
    problem = answer.json()
    return answer.status_code, problem["type"].rpartition(":")[2], problem.get("parameter")


@pytest.fixture(scope="module")
def expected(client: TestClient, digits: list[bytes]) -> Predictions:
    """What the service says of all ten digits, each sent alone."""
    return [
        predictions(client, content=digit, headers={"content-type": "image/png"})[0]
        for digit in digits
    ]


Send = Callable[[bytes], dict[str, Any]]
WAYS: dict[str, Send] = {
    "a form": lambda picture: {"files": {"file": picture}},
    "base64": lambda picture: {"json": {"image": text(picture)}},
    "a data URL": lambda picture: {"json": {"image": f"data:image/png;base64,{text(picture)}"}},
}


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
def test_each_way_of_sending_gives_the_same_prediction(
    send: Send, client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """As curl, scripts and a browser's canvas have pictures."""
    assert expected[7:8] == predictions(client, **send(digits[7]))


@pytest.mark.parametrize("way", ["files", "json"])
def test_several_pictures_are_answered_in_order(
    way: str, client: TestClient, digits: list[bytes], expected: Predictions
) -> None:
    """One prediction for each picture, in its place; a batch moves no length visibly."""
    labels = (3, 1, 4, 1, 5)
    requests: dict[str, Any] = {
        "files": [("file", digits[label]) for label in labels],
        "json": {"images": [text(digits[label]) for label in labels]},
    }
    answers = predictions(client, **{way: requests[way]})
    for label, prediction in zip(labels, answers, strict=True):
        assert expected[label]["lengths"] == pytest.approx(prediction["lengths"], abs=1e-5)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"files": {"picture": b"x"}}, id="another name"),
        pytest.param({"files": [("file", b"x"), ("other", b"y")]}, id="another file besides"),
        pytest.param({"files": {"file": b"x"}, "data": {"fit": "none"}}, id="a text besides"),
        pytest.param({"files": {"file": (None, "seven.png")}}, id="text for a file"),
        pytest.param({"files": {"file": (None, "")}}, id="empty text for a file"),
    ],
)
def test_a_form_holds_files_of_one_name(request_: dict[str, Any], client: TestClient) -> None:
    """Another field, or text in place of the file, is refused; the problem names the field."""
    assert (400, "malformed-request", "file") == refusal(client, **request_)


FORM = {"content-type": "multipart/form-data; boundary=x"}
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
MALFORMED: dict[str, dict[str, Any]] = {
    "an empty body": {"headers": {"content-type": "image/png"}},
    "an empty file": {"files": {"file": b""}},
    "an empty text": {"json": {"image": ""}},
    "an empty data URL": {"json": {"image": "data:image/png;base64,"}},
    "no JSON at all": {"headers": JSON},
    "cut JSON": {"content": b"{", "headers": JSON},
    "a form for JSON": {"content": b"image=x", "headers": JSON},
    "not UTF-8": {"content": b"\xff\xfe\xfd", "headers": JSON},
    "JSON nested deeply": {"content": b"[" * 100_000, "headers": JSON},
    "a form whose second file is cut": {"content": PART + b"a\r\n" + PART + b"b", "headers": FORM},
    "no boundary": {"content": b"--x--", "headers": {"content-type": "multipart/form-data"}},
}


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_body_is_refused(request_: dict[str, Any], client: TestClient) -> None:
    """What is empty, cut or not what it calls itself, in every way of sending."""
    assert (400, "malformed-request", None) == refusal(client, **request_)


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "image",
        [],
        ["iVBOR"],
        {},
        {"image": 7},
        {"image": ["iVBOR"]},
        {"images": []},
        {"images": "iVBOR"},
        {"picture": "iVBOR"},
        {"image": "iVBOR", "images": ["iVBOR"]},
        {"image": "iVBOR", "fit": "none"},
    ],
    ids=json.dumps,
)
def test_json_of_another_shape_is_refused(value: object, client: TestClient) -> None:
    """The problem names both shapes; other fields are refused, not ignored."""
    answer = client.post("/classify", content=json.dumps(value), headers=JSON)
    assert 400 == answer.status_code
    assert '{"image": "<base64>"} or {"images"' in answer.json()["detail"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "image", "multipart/mixed", ""]
)
def test_other_content_types_are_refused(
    kind: str, client: TestClient, digits: list[bytes]
) -> None:
    """A picture sent as something else is refused, with the three ways of sending."""
    sent = {"content": digits[7], "headers": {"content-type": kind}}
    assert (415, "unsupported-format", None) == refusal(client, **sent)


@pytest.mark.parametrize("count", [6, 7, 20])
def test_too_many_images_are_refused(count: int, client: TestClient, digits: list[bytes]) -> None:
    """One too many is as bad as many, in a form and in JSON."""
    for sent in ({"files": [("file", digits[7])] * count}, {"json": {"images": ["iVBO"] * count}}):
        assert (413, "too-large", None) == refusal(client, **sent)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_routes_of_one_picture_refuse_several(
    count: int, client: TestClient, digits: list[bytes]
) -> None:
    """Only /classify takes several pictures; which one would /reconstruct draw?"""
    answer = client.post("/reconstruct", files=[("file", digits[7])] * count)
    assert (422, "this route takes one image") == (answer.status_code, answer.json()["detail"])


RAW = {"content-type": "image/png"}


@pytest.mark.parametrize("headers", [RAW, FORM, JSON], ids=["raw", "form", "JSON"])
def test_a_body_over_the_limit_is_refused(
    headers: dict[str, str], client: TestClient, settings: Settings
) -> None:
    """One byte more is too large, in every way of sending."""
    body = PART + bytes(settings.max_body_bytes + 1 - len(PART))
    answer = client.post("/classify", content=body, headers=headers)
    problem = answer.json()
    assert (413, "urn:capsnet:problem:too-large") == (answer.status_code, problem["type"])
    assert "the request body exceeds 200,000 bytes" == problem["detail"]
    assert answer.headers["X-Request-ID"] == problem["request_id"]


def send_in_chunks(
    client: TestClient, headers: dict[str, str], chunks: list[bytes]
) -> tuple[httpx.Response, int]:
    """The answer to a body that comes in chunks, and how many of them the service took."""
    taken = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal taken
        for chunk in chunks:
            taken += 1
            yield chunk

    async def scenario() -> httpx.Response:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as sender:
            return await sender.post("/classify", content=body(), headers=headers)

    return asyncio.run(scenario()), taken


@pytest.mark.parametrize("headers", [RAW, FORM, JSON], ids=["raw", "form", "JSON"])
def test_an_unannounced_body_is_cut_off_at_the_limit(
    headers: dict[str, str], client: TestClient
) -> None:
    """A chunked body has no Content-Length: it is refused as soon as it passes the limit."""
    answer, taken = send_in_chunks(client, headers, [PART, *[bytes(50_000)] * 20])
    assert (413, 5) == (answer.status_code, taken)
    assert "urn:capsnet:problem:too-large" == answer.json()["type"]


@pytest.mark.parametrize(("announced", "expected"), [("200001", 0), ("10", 5)])
def test_an_announced_body_is_not_even_begun(
    announced: str, expected: int, client: TestClient
) -> None:
    """A Content-Length over the limit is enough; one that says too little does not help."""
    headers = {**RAW, "content-length": announced}
    answer, taken = send_in_chunks(client, headers, [bytes(50_000)] * 20)
    assert (413, expected) == (answer.status_code, taken)
