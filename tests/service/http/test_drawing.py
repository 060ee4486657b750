from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.drawing import MAX_WAITING, open_pool
from service.http.negotiation import JSON, PNG
from service.shared import RoundRobin
from tests.processes import descendants

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
    for number in range(MAX_WAITING):
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
    assert 0 == client.app.state.admission.waiting_rows  # type: ignore[attr-defined]


def test_a_drawing_that_is_late_is_given_up(client: TestClient, digits: list[bytes]) -> None:
    """Its process is killed, and the next drawing has another."""
    path = "/equivariance?steps=64"
    assert 200 == draw(client, path, digits[7]).status_code
    late = draw(client, path, digits[7], **{"X-Request-Timeout": "0.15"})
    assert 504 == late.status_code
    assert 200 == draw(client, path, digits[7]).status_code


def test_a_drawing_without_memory_is_answered_with_503(
    client: TestClient, digits: list[bytes]
) -> None:
    """It is neither the picture's fault nor one that the log has to explain."""
    state = client.app.state  # type: ignore[attr-defined]
    ample = state.drawing
    state.drawing = open_pool(memory_bytes=4_000_000)
    try:
        refused = draw(client, DRAWN[0], digits[7])
    finally:
        state.drawing.close()
        state.drawing = ample
    assert (503, "1") == (refused.status_code, refused.headers["Retry-After"])
    assert "drawing took more memory" in refused.json()["detail"]


def test_a_drawing_that_crashes_is_answered_with_503(
    client: TestClient, digits: list[bytes]
) -> None:
    """The next one has another process."""
    pool = client.app.state.drawing  # type: ignore[attr-defined]
    assert 200 == draw(client, DRAWN[0], digits[7]).status_code
    with ThreadPoolExecutor(1) as asking:
        crashing = asking.submit(draw, client, "/equivariance?steps=64", digits[7])
        while pool.idle:
            assert not crashing.done()
        (child,) = descendants(pool.fork_server.pid)
        os.kill(child, signal.SIGKILL)
        refused = crashing.result()
    assert (503, "1") == (refused.status_code, refused.headers["Retry-After"])
    assert 200 == draw(client, DRAWN[0], digits[7]).status_code
