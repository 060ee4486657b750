from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

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


def test_drawings_take_turns(client: TestClient, digits: list[bytes]) -> None:
    """Several at once are all drawn, with one process."""
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: draw(client, DRAWN[0], digits[7]), range(6)))
    assert [(200, PNG)] * 6 == [(one.status_code, one.headers["content-type"]) for one in answers]


def test_nothing_is_drawn_in_this_process(client: TestClient, digits: list[bytes]) -> None:
    """Matplotlib is not safe for threads, and takes 50 MB."""
    assert 200 == draw(client, DRAWN[0], digits[7]).status_code
    pool = client.app.state.drawing  # type: ignore[attr-defined]
    assert pool.fork_server.pid not in (0, os.getpid())


@pytest.mark.parametrize(
    ("path", "kind"), [("/rivals", JSON), ("/rivals", PNG), ("/segment", JSON)]
)
def test_pictures_of_an_answer_are_encoded_off_the_event_loop_where_they_are_sent(
    path: str,
    kind: str,
    client: TestClient,
    digits: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to 64 of them take tens of milliseconds; a drawing is made without them."""
    threads: set[str] = set()
    save = Image.Image.save

    def record(*args: Any, **kwargs: Any) -> None:
        threads.add(threading.current_thread().name)
        save(*args, **kwargs)

    monkeypatch.setattr(Image.Image, "save", record)
    answered = draw(client, path, digits[7], kind)
    assert (200, kind) == (answered.status_code, answered.headers["content-type"])
    assert (kind == JSON) == ("data:image/png" in answered.text)
    assert ["slow"] * (kind == JSON) == [thread.partition("_")[0] for thread in threads]
