from __future__ import annotations

import asyncio
import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

BODY = {
    "/classify": ("image/png", b"picture"),
    "/reconstruct": ("image/png", b"picture"),
    "/decode": ("application/json", b'{"pose": ["'),
}


def request(path: str, *, announced: int) -> Scope:
    kind, _ = BODY[path]
    headers = {"content-type": kind, "content-length": str(announced)}
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }


def send(app: FastAPI, scope: Scope, messages: list[Message]) -> list[Message]:
    """What is answered to a request that comes in these messages."""
    answers: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def take(message: Message) -> None:
        answers.append(message)

    asyncio.run(app(scope, receive, take))
    return answers


@pytest.mark.parametrize("path", BODY)
def test_who_leaves_during_the_upload_is_no_failure(
    path: str, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is answered; it is counted and logged with a status of its own."""
    begun = {"type": "http.request", "body": BODY[path][1], "more_body": True}
    before = left(path, client)
    with caplog.at_level(logging.INFO):
        answers = send(
            client.app,  # type: ignore[arg-type]
            request(path, announced=1000),
            [begun, {"type": "http.disconnect"}],
        )
    assert [] == answers
    assert [f"POST {path} 499"] == caplog.messages
    assert before + 1 == left(path, client)


def left(path: str, client: TestClient) -> float:
    """How many clients did not wait for an answer, by the metrics."""
    counted = f'capsnet_requests_total{{method="POST",route="{path}",status="499"}} '
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.removeprefix(counted)) for line in lines if line.startswith(counted))


def test_a_process_without_memory_says_so(client: TestClient) -> None:
    """It is not the request's fault: another process may answer."""

    async def receive() -> Message:
        raise MemoryError

    answers: list[Message] = []

    async def take(message: Message) -> None:
        answers.append(message)

    asyncio.run(client.app(request("/classify", announced=7), receive, take))
    assert 503 == answers[0]["status"]
    assert (b"retry-after", b"1") in answers[0]["headers"]
