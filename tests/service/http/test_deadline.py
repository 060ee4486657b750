from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from service.inference.engine import ServedNet
from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve

SEVEN = (SAMPLES / "7.png").read_bytes()
LIMIT_S = 0.5


def answers(settings: Settings, **slow: float) -> list[Message]:
    """What a client gets that is as slow as `ask` says."""
    app = serve(settings).app

    async def scenario() -> list[Message]:
        async with app.router.lifespan_context(app):
            return await ask(app, **slow)

    return asyncio.run(scenario())


async def ask(app: FastAPI, *, body_after_s: float = 0, taken_after_s: float = 0) -> list[Message]:
    """What a client gets that is slow to send its body, or slow to take its answer."""
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/classify",
        "query_string": b"",
        "headers": [
            (b"content-type", b"image/png"),
            (b"x-request-timeout", str(LIMIT_S).encode()),
        ],
    }
    sent = False
    answer: list[Message] = []

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        await asyncio.sleep(body_after_s)
        sent = True
        return {"type": "http.request", "body": SEVEN, "more_body": False}

    async def send(message: Message) -> None:
        await asyncio.sleep(taken_after_s)
        answer.append(message)

    await app(scope, receive, send)
    return answer


def test_the_answer_has_to_be_made_in_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the end of the body on, the deadline holds."""

    async def take_long(*_arguments: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(ServedNet, "encode", take_long)
    assert 504 == answers(settings, body_after_s=LIMIT_S / 5)[0]["status"]


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_deadline_that_makes_no_sense_is_refused(limit: str, client: TestClient) -> None:
    """The header is a positive number of seconds."""
    headers = {"X-Request-Timeout": limit}
    answer = client.post("/classify", files={"file": SEVEN}, headers=headers)
    assert 422 == answer.status_code
    assert "X-Request-Timeout" == answer.json()["parameter"]
