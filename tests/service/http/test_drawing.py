from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.http.answers import JSON, PNG
from service.pictures import MAX_DRAWINGS
from service.shared import RoundRobin

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
    assert 0 == client.app.state.admission.waiting_rows  # type: ignore[attr-defined]


def test_a_drawing_that_is_late_is_given_up(client: TestClient, digits: list[bytes]) -> None:
    """Its process is killed, and the next drawing has another."""
    path = "/equivariance?steps=64"
    assert 200 == draw(client, path, digits[7]).status_code
    late = draw(client, path, digits[7], **{"X-Request-Timeout": "0.15"})
    assert 504 == late.status_code
    assert 200 == draw(client, path, digits[7]).status_code
