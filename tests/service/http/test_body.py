from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.app import Context
from service.http.middleware import Middleware
from service.settings import Settings


class Upload:
    """A request whose body arrives as the test says."""

    def __init__(self, middleware: Middleware, client: str = "10.0.0.1") -> None:
        self.arriving: asyncio.Queue[Message] = asyncio.Queue()
        self.status = 0
        scope: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        scope["client"] = (client, 1)
        self.task = asyncio.create_task(middleware(scope, self.arriving.get, self._send))

    async def _send(self, message: Message) -> None:
        self.status = message.get("status", self.status)

    async def arrive(self, size: int, *, more: bool = True) -> int:
        """So many bytes arrive; the status, if it is answered now."""
        message = {"type": "http.request", "body": bytes(size), "more_body": more}
        self.arriving.put_nowait(message)
        await settle()
        return self.status


async def settle() -> None:
    """Let everything happen that can happen without more time."""
    for _ in range(20):
        await asyncio.sleep(0)


class App:
    """Reads bodies, and answers when the test says."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body, wait, answer."""
        while (await receive()).get("more_body"):
            pass
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 200})


Scenario = Callable[[Middleware, App], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, upload_timeout_s: float = 60) -> None:
    """Play a scenario before a service that holds a thousand bytes of bodies, 400 of each."""
    settings = Settings(
        max_body_bytes=400, max_waiting_bytes=1000, upload_timeout_s=upload_timeout_s
    )

    async def run() -> None:
        app = App()
        middleware = Middleware(app, Context(settings))
        await scenario(middleware, app)
        app.answer.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await settle()
        assert 0 == middleware.context.admission.held_bytes

    asyncio.run(run())


def test_bodies_that_do_not_fit_beside_others_are_refused() -> None:
    """What others hold counts until their requests are answered; then there is room again."""

    async def scenario(middleware: Middleware, app: App) -> None:
        held = [Upload(middleware), Upload(middleware)]
        assert [0, 0] == [await upload.arrive(250, more=False) for upload in held]
        assert 429 == await Upload(middleware).arrive(10, more=False)
        app.answer.set()
        await settle()
        assert [200, 200] == [upload.status for upload in held]
        assert 200 == await Upload(middleware).arrive(10, more=False)

    play(scenario)


def test_the_largest_unfinished_body_makes_room() -> None:
    """Withheld bodies of the same address do not keep its small ones out."""

    async def scenario(middleware: Middleware, app: App) -> None:
        finished = Upload(middleware)
        await finished.arrive(200, more=False)
        smaller, larger = Upload(middleware), Upload(middleware)
        await smaller.arrive(100)
        await larger.arrive(200)
        assert 0 == await Upload(middleware).arrive(10, more=False)
        assert [0, 0, 429] == [one.status for one in (finished, smaller, larger)]
        assert 310 == middleware.context.admission.held_bytes
        app.answer.set()
        assert 200 == await smaller.arrive(1, more=False)

    play(scenario)


def test_what_a_proxy_forwards_as_address_is_short() -> None:
    """It may be any text, and is kept for a long time."""

    async def scenario(middleware: Middleware, _app: App) -> None:
        await Upload(middleware, "x" * 60_000).arrive(1)
        assert [45] == list(map(len, middleware.context.admission.bytes_of))

    play(scenario)


def test_a_body_that_stalls_is_answered_with_408() -> None:
    """The rest is not waited for."""

    async def scenario(middleware: Middleware, _app: App) -> None:
        stalled = Upload(middleware)
        await stalled.arrive(100)
        await asyncio.wait_for(stalled.task, 10)
        assert 408 == stalled.status

    play(scenario, upload_timeout_s=0.05)


def test_errors_after_the_answer_has_begun_pass_through() -> None:
    """Nothing else can be answered any more."""

    async def scenario(middleware: Middleware, _app: App) -> None:
        async def broken(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200})
            raise LookupError

        middleware.app = broken
        with pytest.raises(LookupError):
            await Upload(middleware).task

    play(scenario)
