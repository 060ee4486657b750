from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import Context
from service.http.middleware import Middleware
from service.settings import Settings

POST: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
BODY: Message = {"type": "http.request", "body": b"picture", "more_body": False}
LEFT: Message = {"type": "http.disconnect"}


def wrap(app: ASGIApp, *, upload_timeout_s: float = 60) -> Middleware:
    """What is around an app, without keys."""
    settings = Settings(upload_timeout_s=upload_timeout_s)
    return Middleware(app, Context(settings))


class Client:
    """Sends messages, then stays silent; keeps what it is answered."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)
        self.answers: list[Message] = []

    async def receive(self) -> Message:
        """Give the next message, or wait for ever."""
        for message in self._messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Message) -> None:
        """Take an answer."""
        self.answers.append(message)


class App:
    """Reads the body, then works for ever unless it is quick."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self.cancelled = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        assert await receive() == BODY
        try:
            if not self._quick:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await send({"type": "http.response.start", "status": 200})


def handle(app: ASGIApp, *messages: Message, upload_timeout_s: float = 60) -> list[Message]:
    """What an app answers, within a second, to a client that sends messages and stays silent."""
    client = Client(messages)

    async def within_a_second() -> None:
        async with asyncio.timeout(1):
            wrapped = wrap(app, upload_timeout_s=upload_timeout_s)
            await wrapped({**POST}, client.receive, client.send)

    asyncio.run(within_a_second())
    return client.answers


def test_handling_ends_when_the_client_leaves() -> None:
    """The work of a client that left is cancelled, quietly."""
    app = App(quick=False)
    assert [] == handle(app, BODY, LEFT)
    assert app.cancelled


def test_errors_after_the_answer_has_begun_pass_through() -> None:
    """Nothing else can be answered any more."""

    async def broken(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        raise LookupError

    with pytest.raises(LookupError):
        handle(broken)


def test_a_body_that_stalls_is_answered_with_408() -> None:
    """The connection is of no use then, and the rest is not waited for."""

    async def read(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    start, rest = handle(read, {**BODY, "more_body": True}, upload_timeout_s=0.05)
    assert 408 == start["status"]
    assert (b"connection", b"close") in start["headers"]
    assert "urn:capsnet:problem:upload-timeout" == json.loads(rest["body"])["type"]
