from __future__ import annotations

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

from model.outputs import Encoding
from model.preprocess import Floats
from model.runtime import Runtime
from service.http.request import JSON, PNG
from service.pictures import MAX_DRAWINGS
from service.settings import Settings
from service.shared import RoundRobin
from tests.serving import serve

PICTURES = 6
LARGEST = "/sweep?start=-0.15&stop=0&step=0.01"
"""One encoding, a sweep of 16 dimensions by 16 steps, and the answer: nothing costs more rows."""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Images are encoded once it is set."""
    gate = threading.Event()
    real = Runtime.encode

    def encode(runtime: Runtime, images: Floats) -> Encoding[Floats]:
        assert gate.wait(60)
        return real(runtime, images)

    monkeypatch.setattr(Runtime, "encode", encode)
    return gate


def test_a_full_queue_is_answered_with_429(
    settings: Settings, digits: list[bytes], gate: threading.Event
) -> None:
    """Rejected requests get `Retry-After`; admitted ones are answered all the same."""
    with serve(settings, max_waiting_rows=1) as client, ThreadPoolExecutor(PICTURES) as pool:
        asked = [
            pool.submit(client.post, LARGEST, files={"file": digits[7]}) for _ in range(PICTURES)
        ]
        wait(asked, timeout=60, return_when=FIRST_COMPLETED)
        gate.set()
        answers = [one.result() for one in asked]
        metrics = client.get("/metrics").text
    refused = [one for one in answers if one.status_code == httpx.codes.TOO_MANY_REQUESTS]
    taken = [one for one in answers if one.status_code == httpx.codes.OK]
    assert refused
    assert PICTURES == len(refused) + len(taken)
    assert 1 == len({one.content for one in taken})
    assert all(1 <= int(one.headers["Retry-After"]) for one in refused)
    assert {"urn:capsnet:problem:busy"} == {one.json()["type"] for one in refused}
    assert f'capsnet_rejections_total{{reason="busy"}} {len(refused):.1f}' in metrics


def test_who_leaves_while_it_waits_is_counted_with_its_time(
    settings: Settings, digits: list[bytes], gate: threading.Event
) -> None:
    """As status 499; else nobody would see how many give up, nor after how long."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/classify",
        "query_string": b"",
        "headers": [(b"content-type", b"image/png")],
    }
    answers = []

    async def receive() -> Message:
        await asyncio.sleep(0.1)
        return {"type": "http.request", "body": digits[7]}

    async def send(message: Message) -> None:
        answers.append(message)

    async def leave() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(client.app(scope, receive, send), 0.3)

    with serve(settings) as client:
        asyncio.run(leave())
        metrics = client.get("/metrics").text
        gate.set()
    assert [] == answers
    assert 'capsnet_requests_total{method="POST",route="/classify",status="499"} 1.0' in metrics
    assert 'capsnet_request_seconds_bucket{le="0.1",method="POST",route="/classify"} 0.0' in metrics
    assert 'capsnet_request_seconds_count{method="POST",route="/classify"} 1.0' in metrics


DRAWN = ["/routing?scale=16", "/equivariance?steps=2", "/rivals?count=2"]


def draw(client: TestClient, path: str, digit: bytes, kind: str = PNG, **headers: str) -> Any:
    return client.post(path, files={"file": digit}, headers={"Accept": kind, **headers})


@pytest.mark.parametrize("path", DRAWN)
def test_a_full_queue_of_drawings_is_answered_with_429(
    path: str, client: TestClient, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For drawings alone: the same as JSON has no need to wait for them."""
    turns = client.app.state.drawing.turns  # type: ignore[attr-defined]
    others = RoundRobin[None]()
    for number in range(MAX_DRAWINGS):
        others.push(number, None)
    with monkeypatch.context() as patch:
        patch.setattr(turns, "_free", 0)
        patch.setattr(turns, "_waiting", others)
        refused = draw(client, path, digits[7])
        answered = draw(client, path, digits[7], JSON)
    assert 429 == refused.status_code
    assert 1 <= int(refused.headers["Retry-After"])
    assert 200 == answered.status_code
    assert 200 == draw(client, path, digits[7]).status_code
    assert 0 == client.app.state.admission.waiting_cost  # type: ignore[attr-defined]


def test_a_drawing_that_is_late_is_given_up(client: TestClient, digits: list[bytes]) -> None:
    """Its process is killed, and the next drawing has another."""
    path = "/equivariance?steps=64"
    assert 200 == draw(client, path, digits[7]).status_code
    late = draw(client, path, digits[7], **{"X-Request-Timeout": "0.15"})
    assert 504 == late.status_code
    assert 200 == draw(client, path, digits[7]).status_code
