"""What wraps every request: `Exchange` outside, `Guard` within, CORS between them if it is on."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Busy, TooLarge, UploadTimeout
from service.http.keys import KEY_HEADER, Access
from service.http.problems import PROBES, REQUEST_ID, answer
from service.lifecycle import Lifecycle
from service.settings import Settings
from service.telemetry import logs, timings
from service.telemetry.metrics import Metrics

TIMEOUT_HEADER = "X-Request-Timeout"
MODEL_HEADER = "X-Model"
"""Which bundle an image comes from: `name; version=...`."""
PATIENCE_S = 0.02
"""How long a request is handled before its client is watched."""
CLIENT_LEFT = 499
"""Noted as the status of a request whose client did not wait for an answer, as nginx does."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""Everything from this service alone, and nothing inline."""
_PAGE_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
"""Of HTML that does not bring its own."""
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOUNTED = "app_root_path"
"""Where this is in a scope, the request was for a file of a mounted folder (Starlette)."""


@dataclass
class Exchange:
    """Gives each request an id and each answer its headers; times, counts and logs both.

    HEAD is answered as GET without the body (RFC 9110, section 9.3.2), and `/v1/...` as `/...`.
    """

    app: ASGIApp
    metrics: Metrics
    lifecycle: Lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; what is not HTTP (the lifespan) passes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, seconds = time.perf_counter(), timings.collect()
        method, status = scope["method"], 0
        request_id = Headers(scope=scope).get(REQUEST_ID, "")
        if not _ACCEPTED_ID.fullmatch(request_id):
            request_id = secrets.token_hex(16)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        logs.request_id.set(request_id)
        if method == "HEAD" or scope["path"].startswith("/v1/"):
            path = scope["path"].removeprefix("/v1")
            scope = {**scope, "method": "GET" if method == "HEAD" else method, "path": path}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                state["begun"], status = True, message["status"]
                seconds["total"] = time.perf_counter() - started
                message["headers"] = self._headers(message, request_id, seconds)
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        self.metrics.begin_request()
        try:
            await self.app(scope, receive, send_with_headers)
            if not status:
                status, seconds["total"] = CLIENT_LEFT, time.perf_counter() - started
        finally:
            self.metrics.end_request()
            if status:  # the client need not wait for this
                self._note(method, scope, status, seconds)

    def _headers(
        self, start: Message, request_id: str, seconds: dict[str, float]
    ) -> list[tuple[bytes, bytes]]:
        """Those of an answer, and what every one has."""
        headers = MutableHeaders(raw=list(start.get("headers", ())))
        if headers.get("content-type", "").startswith("text/html"):
            for name, value in _PAGE_HEADERS.items():
                headers.setdefault(name, value)
        headers[REQUEST_ID] = request_id
        headers["X-Content-Type-Options"] = "nosniff"
        timing = (f"{stage};dur={1e3 * s:.2f}" for stage, s in seconds.items())
        headers["Server-Timing"] = ", ".join(timing)
        if self.lifecycle.draining:
            headers["Connection"] = "close"
        return headers.raw

    def _note(self, method: str, scope: Scope, status: int, seconds: dict[str, float]) -> None:
        route = _route(scope)
        self.metrics.note_request(method, route, status, seconds["total"])
        for stage in seconds.keys() - {"total"}:
            self.metrics.note_stage(stage, seconds[stage])
        if route not in PROBES:
            times = {f"{stage}_ms": round(1000 * s, 2) for stage, s in seconds.items()}
            level = logging.DEBUG if _MOUNTED in scope and status < 400 else logging.INFO
            fields = {"route": route, "status": status, **times}
            logs.ACCESS.log(level, "%s %s %s", method, route, status, extra={"fields": fields})


def _route(scope: Scope) -> str:
    """The path's template, or the mounted folder's; never what the client typed."""
    if _MOUNTED in scope:
        return str(scope["root_path"].removeprefix(scope[_MOUNTED]))
    return getattr(scope.get("route"), "path", "unknown")


def cross_origin(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of other origins ask, if there are any."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", KEY_HEADER, REQUEST_ID, TIMEOUT_HEADER],
        expose_headers=["Retry-After", "Server-Timing", MODEL_HEADER, REQUEST_ID],
    )


class Guard:
    """Checks keys and bodies, cancels the work for clients that leave, and answers errors.

    Args:
        app: what is wrapped.
        access: asks for keys.
        settings: limit the size of one body, the bytes of all, and the time for one to arrive.
        of_paths: smaller sizes, by path.
    """

    def __init__(
        self, app: ASGIApp, access: Access, settings: Settings, of_paths: Mapping[str, int]
    ) -> None:
        self._app = app
        self._access = access
        self._of_paths = of_paths
        self.settings = settings
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; what is not HTTP (the lifespan) passes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._handle(scope, receive, send)
        except ClientDisconnect:
            return
        except Exception as error:
            if scope["state"].get("begun"):
                raise
            await answer(Request(scope), error)(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = self._of_paths.get(scope["path"], self.settings.max_body_bytes)
        upload = _Upload(self, scope, receive, max_bytes)
        try:
            self._access.check(scope)
            await self._app(scope, upload.receive, send)
        except asyncio.CancelledError:
            if upload.end is None or upload.task.uncancel():
                raise
            raise upload.end from None
        finally:
            upload.close()


class _Upload:
    """One body as it arrives, and then whether its client is still there.

    The client is watched from PATIENCE_S on: what is answered by then needs no watching.
    """

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, max_bytes: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.end: Exception | None = None
        """Why the handling was cancelled."""
        self._guard = guard
        self._scope = scope
        self._receive = receive
        self._max_bytes = max_bytes
        self._bytes = 0
        self._complete = False
        self._waiting: asyncio.TimerHandle | asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next part of the body; limits are checked."""
        if self._waiting is None:
            announced = Headers(scope=self._scope).get("content-length", "")
            self._check(int(announced) if announced.isdecimal() else 0)
            timeout_s = self._guard.settings.upload_timeout_s
            self._waiting = self.task.get_loop().call_later(timeout_s, self._expire)
        message = await self._receive()
        size = len(message.get("body", b""))
        self._check(self._bytes + size)
        if self._guard.held_bytes + size > self._guard.settings.max_waiting_bytes:
            raise Busy("too many request bodies are held already", retry_after_s=1)
        self._bytes += size
        self._guard.held_bytes += size
        if not self._complete and not message.get("more_body"):
            self._complete = True
            self._waiting.cancel()
            self._waiting = self.task.get_loop().call_later(PATIENCE_S, self._begin_watching)
        return message

    def close(self) -> None:
        """Give the bytes back, and watch no more."""
        self._guard.held_bytes -= self._bytes
        if self._waiting:
            self._waiting.cancel()

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(f"a request body may have {self._max_bytes:,} bytes")

    def _expire(self) -> None:
        timeout_s = self._guard.settings.upload_timeout_s
        self._cancel(UploadTimeout(f"the body did not arrive within {timeout_s:g} s"))

    def _begin_watching(self) -> None:
        self._waiting = self.task.get_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel(ClientDisconnect())

    def _cancel(self, reason: Exception) -> None:
        self.end = reason
        self.task.cancel()
