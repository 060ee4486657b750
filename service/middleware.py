"""What wraps every request: its id, its times, its client's patience and its size."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs, problems, timings
from service.metrics import Metrics
from service.problems import PROBES, REQUEST_ID, Busy, TooLarge

_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PATIENCE_S = 0.001
"""How long a request is handled before its client is watched."""
CLIENT_LEFT = 499
"""Noted as the status of a request whose client did not wait for an answer, as nginx does."""
_MOUNTED = "app_root_path"
"""Where this is in a scope, the request was for a file of a mounted folder (Starlette)."""


class HttpMiddleware(ABC):
    """Wraps the handling of requests; what is not HTTP (the lifespan) passes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection. No coroutine of its own: every request is in all of them."""
        wrapped = self.handle if scope["type"] == "http" else self.app
        return wrapped(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, by way of `self.app`."""


class Head(HttpMiddleware):
    """Answers HEAD as GET, without the body (RFC 9110, section 9.3.2)."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        await self.app({**scope, "method": "GET"}, receive, send_without_body)


class RequestId(HttpMiddleware):
    """Gives each request an id, its sender's if that is well formed, and echoes it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        sent = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = sent if _ACCEPTED_ID.fullmatch(sent) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id
        logs.request_id.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append(REQUEST_ID, request_id)
            await send(message)

        await self.app(scope, receive, send_with_id)


class Telemetry(HttpMiddleware):
    """Times each request: `Server-Timing` on the answer, the metrics and the access log."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started = time.perf_counter()
        status = 0
        with timings.collecting() as seconds:

            async def send_with_timing(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    seconds["total"] = time.perf_counter() - started
                    timing = timings.server_timing(seconds)
                    MutableHeaders(scope=message).append("Server-Timing", timing)
                await send(message)

            try:
                await self.app(scope, receive, send_with_timing)
                if not status:
                    status = CLIENT_LEFT
                    seconds["total"] = time.perf_counter() - started
            finally:
                if status:  # the client need not wait for this
                    self._note(scope, status, seconds)

    def _note(self, scope: Scope, status: int, seconds: dict[str, float]) -> None:
        route = _route(scope)
        self._metrics.note_request(route, status, seconds["total"])
        for stage in seconds.keys() - {"total"}:
            self._metrics.note_stage(stage, seconds[stage])
        if route not in PROBES:
            milliseconds = {f"{stage}_ms": round(1000 * s, 2) for stage, s in seconds.items()}
            quiet = _MOUNTED in scope and status < HTTPStatus.BAD_REQUEST
            logs.ACCESS.log(
                logging.DEBUG if quiet else logging.INFO,
                "%s %s %s",
                scope["method"],
                route,
                status,
                extra={"fields": {"route": route, "status": status, **milliseconds}},
            )


def _route(scope: Scope) -> str:
    """The path's template, or the mounted folder's; never what the client typed."""
    if _MOUNTED in scope:
        return str(scope["root_path"].removeprefix(scope[_MOUNTED]))
    return getattr(scope.get("route"), "path", "unknown")


class Failures(HttpMiddleware):
    """Answers whatever is raised further in with a problem, unless the answer has begun.

    Who leaves while its body is read is answered nothing.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except ClientDisconnect:
            return
        except Exception as error:
            if begun:
                raise
            answer = await problems.answer(Request(scope), error)
            await answer(scope, receive, send)


class Disconnect(HttpMiddleware):
    """Cancels the handling of a request whose client has left, once its body was read.

    Looks for the first time after PATIENCE_S: what is answered by then needs no watching.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        loop = asyncio.get_running_loop()
        handling = asyncio.current_task()
        assert handling is not None
        watching: asyncio.TimerHandle | asyncio.Task[None] | None = None
        left = False

        async def receive_and_watch() -> Message:
            nonlocal watching
            message = await receive()
            if not message.get("more_body") and watching is None:
                watching = loop.call_later(PATIENCE_S, begin)
            return message

        def begin() -> None:
            nonlocal watching
            watching = loop.create_task(watch())

        async def watch() -> None:
            nonlocal left
            while (await receive())["type"] != "http.disconnect":
                pass
            left = True
            handling.cancel()

        try:
            await self.app(scope, receive_and_watch, send)
        except asyncio.CancelledError:
            if not left or handling.uncancel():
                raise
        finally:
            if watching:
                watching.cancel()


class BodyLimit(HttpMiddleware):
    """Refuses bodies over a size, and those for which there is no room beside others'.

    Args:
        app: what is wrapped.
        max_bytes: of one body, by its announcement or as it arrives.
        max_total_bytes: of all bodies of requests that are being handled.
        of_paths: smaller limits than `max_bytes`, by path.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        max_total_bytes: int,
        of_paths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(app)
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._of_paths = of_paths
        self._held = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        announced = Headers(scope=scope).get("content-length", "")
        max_bytes = min(self._max_bytes, self._of_paths.get(scope["path"], self._max_bytes))
        received = 0

        async def receive_within_limits() -> Message:
            nonlocal received
            if announced.isdecimal():
                _check(int(announced), max_bytes)
            message = await receive()
            size = len(message.get("body", b""))
            _check(received + size, max_bytes)
            if self._held + size > self._max_total_bytes:
                raise Busy("too many request bodies are held already", retry_after_s=1)
            received += size
            self._held += size
            return message

        try:
            await self.app(scope, receive_within_limits, send)
        finally:
            self._held -= received


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(f"a request body may have {max_bytes:,} bytes")
