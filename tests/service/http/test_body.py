from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.http.body import ARRIVES_WHOLE, MIN_BYTES, MOMENT_S, WINDOW_S
from service.http.context import Context
from service.http.middleware import Middleware
from service.settings import Settings


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock the test moves on."""

    ahead_s = 0.0

    def time(self) -> float:
        """Seconds, with those that the test has added."""
        return super().time() + self.ahead_s


class Upload:
    """A request whose body arrives as the test says."""

    def __init__(
        self, middleware: Middleware, client: str = "10.0.0.1", *, whole: bool = False
    ) -> None:
        self.arriving: asyncio.Queue[Message] = asyncio.Queue()
        self.status = 0
        scope: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        scope["client"] = (client, 1)
        scope["extensions"] = {ARRIVES_WHOLE: {}} if whole else {}
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


def play(scenario: Scenario) -> None:
    """Play a scenario before a service that holds a thousand bytes of bodies, 400 of each."""
    settings = Settings(max_body_bytes=400, max_waiting_bytes=1000, upload_timeout_s=60)
    if scenario.__name__.startswith("slowly"):
        settings = Settings(upload_timeout_s=60)

    async def run() -> None:
        app = App()
        middleware = Middleware(app, Context(settings))
        await scenario(middleware, app)
        app.answer.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await settle()
        assert 0 == middleware.context.admission.held_bytes

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())


def move(seconds: float) -> None:
    """Let time pass for the event loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    loop.ahead_s += seconds


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


def test_one_address_leaves_room_for_others() -> None:
    """Alone it holds half of all; of two the second finds half of the rest."""

    async def scenario(middleware: Middleware, _app: App) -> None:
        for _ in range(10):
            await Upload(middleware).arrive(100, more=False)
        assert 500 == middleware.context.admission.held_bytes
        assert 0 == await Upload(middleware, "10.0.0.2").arrive(250, more=False)
        assert 429 == await Upload(middleware, "10.0.0.2").arrive(250, more=False)
        assert 0 == await Upload(middleware, "10.0.0.3").arrive(125, more=False)

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


@pytest.mark.parametrize(
    ("size", "every_s", "expected_s"),
    [
        pytest.param(0, WINDOW_S, WINDOW_S, id="nothing"),
        pytest.param(1, WINDOW_S / 4, WINDOW_S, id="a byte now and then"),
        pytest.param(MIN_BYTES // 5, WINDOW_S / 4, WINDOW_S, id="too little"),
        pytest.param(MIN_BYTES, WINDOW_S / 2, 60, id="enough, but for too long"),
    ],
)
def test_a_body_that_comes_too_slowly_is_answered_with_408(
    size: int, every_s: float, expected_s: float
) -> None:
    """Ten kilobytes in each ten seconds, and the whole in the time for an upload."""

    async def slowly(middleware: Middleware, _app: App) -> None:
        upload, passed_s = Upload(middleware), 0.0
        await upload.arrive(MIN_BYTES)
        while not upload.status:
            move(every_s)
            passed_s += every_s
            await asyncio.sleep(0.001)
            if not upload.status:
                await upload.arrive(size)
        assert (408, expected_s) == (upload.status, passed_s)

    play(slowly)


def test_a_body_that_arrives_whole_counts_as_the_largest_until_it_does() -> None:
    """But for a moment; then as many as fit are waited for, and half of the room is left."""

    async def scenario(middleware: Middleware, _app: App) -> None:
        several = [Upload(middleware, whole=True) for _ in range(3)]
        await settle()
        assert 0 == middleware.context.admission.held_bytes
        move(MOMENT_S)
        await settle()
        assert [0, 429, 429] == [upload.status for upload in several]
        assert 400 == middleware.context.admission.held_bytes
        other = Upload(middleware, "10.0.0.2", whole=True)
        await settle()
        move(MOMENT_S)
        await settle()
        assert (429, 400) == (other.status, middleware.context.admission.held_bytes)
        assert 0 == await Upload(middleware, "10.0.0.3").arrive(300)
        assert 700 == middleware.context.admission.held_bytes
        assert 0 == await several[0].arrive(10, more=False)
        assert 310 == middleware.context.admission.held_bytes

    play(scenario)
