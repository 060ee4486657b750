from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from service.errors import Problem
from tests.processes import PATIENCE_S

BODY = {
    "/classify": ("image/png", b"picture"),
    "/reconstruct": ("image/png", b"picture"),
    "/decode": ("application/json", b'{"pose": ["'),
}


@pytest.fixture
def without_collector() -> Iterator[None]:
    """No search for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/classify", b"no picture" * 1000),
        ("/classify", b"\x89PNG\r\n\x1a\n" + bytes(100)),
        ("/reconstruct", b"no picture" * 1000),
        ("/reconstruct?target=10", b"no picture"),
        ("/decode", json.dumps({"pose": [0.1], "label": 3}).encode()),
        ("/decode", b"{"),
    ],
)
def test_what_was_refused_is_let_go(path: str, content: bytes, client: TestClient) -> None:
    """A problem does not wait for the garbage collector with the picture that it is about."""
    kind, _ = BODY[path.partition("?")[0]]
    for _ in range(3):
        answer = client.post(path, content=content, headers={"content-type": kind})
        assert answer.status_code in (400, 415, 422)
    end = time.monotonic() + PATIENCE_S
    while any(issubclass(type(one), Problem) for one in gc.get_objects()):
        assert time.monotonic() < end  # the thread that decoded may be a moment behind
        time.sleep(0.05)


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
