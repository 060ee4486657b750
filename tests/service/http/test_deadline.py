from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings

SEVEN = (SAMPLES / "7.png").read_bytes()
LIMIT_S = 0.5


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[FastAPI]:
    app = create_app(settings, open_engine(load_runtimes(settings)))
    async with app.router.lifespan_context(app):
        yield app


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


def test_a_client_that_is_slow_to_take_its_answer_gets_it(settings: Settings) -> None:
    """The deadline is for making the answer, not for sending it."""

    async def scenario() -> list[Message]:
        async with running(settings) as app:
            return await ask(app, taken_after_s=2 * LIMIT_S)

    start, body = asyncio.run(scenario())
    assert 200 == start["status"]
    assert b'"predictions"' in body["body"]


def test_a_client_that_is_slow_to_send_its_picture_is_too_late(settings: Settings) -> None:
    """Waiting for the body counts."""

    async def scenario() -> list[Message]:
        async with running(settings) as app:
            return await ask(app, body_after_s=2 * LIMIT_S)

    assert 504 == asyncio.run(scenario())[0]["status"]


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_deadline_that_makes_no_sense_is_refused(limit: str, client: TestClient) -> None:
    """The header is a positive number of seconds."""
    headers = {"X-Request-Timeout": limit}
    answer = client.post("/classify", files={"file": SEVEN}, headers=headers)
    assert 422 == answer.status_code
    assert "X-Request-Timeout" == answer.json()["parameter"]
