from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi.testclient import TestClient

from service.settings import Settings

RAW = {"content-type": "image/png"}
FORM = {"content-type": "multipart/form-data; boundary=x"}
JSON = {"content-type": "application/json"}
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize("headers", [RAW, FORM, JSON], ids=["raw", "form", "JSON"])
def test_a_body_over_the_limit_is_refused(
    headers: dict[str, str], client: TestClient, settings: Settings
) -> None:
    """One byte more is too large, in every way of sending."""
    body = FILE + bytes(settings.max_body_bytes + 1 - len(FILE))
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
    answer, taken = send_in_chunks(client, headers, [FILE, *[bytes(50_000)] * 20])
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
