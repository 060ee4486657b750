"""What wraps every request: its id, its times, its client's patience and its size."""

from __future__ import annotations

import asyncio
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs, timings
from service.metrics import Metrics
from service.problems import REQUEST_ID, TooLarge

_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes that are asked every few seconds and are not worth a line."""
_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestId:
    """Gives each request an id, its sender's if that is well formed, and echoes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = sent if _ACCEPTED_ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        logs.request_id.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class Telemetry:
    """Times each request: `Server-Timing` on the answer, the metrics and the access log."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        with timings.collecting() as seconds:

            async def send_with_timing(message: Message) -> None:
                if message["type"] == "http.response.start":
                    seconds["total"] = time.perf_counter() - started
                    MutableHeaders(scope=message)["Server-Timing"] = timings.server_timing(seconds)
                    self._note(scope, message["status"], seconds)
                await send(message)

            try:
                await self._app(scope, receive, send_with_timing)
            except Exception:
                if "total" not in seconds:  # the answer, a 500, is made further out
                    seconds["total"] = time.perf_counter() - started
                    self._note(scope, 500, seconds)
                raise

    def _note(self, scope: Scope, status: int, seconds: dict[str, float]) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        self._metrics.note_request(route, status, seconds["total"])
        for stage in seconds.keys() - {"total"}:
            self._metrics.note_stage(stage, seconds[stage])
        if route not in _PROBES:
            milliseconds = {f"{stage}_ms": round(1000 * s, 2) for stage, s in seconds.items()}
            logs.ACCESS.info(
                "%s %s %s",
                scope["method"],
                route,
                status,
                extra={"fields": {"route": route, "status": status, **milliseconds}},
            )


class Disconnect:
    """Cancels the handling of a request whose client has left, once its body was read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body_read = asyncio.Event()

        async def receive_and_note() -> Message:
            message = await receive()
            if not message.get("more_body"):
                body_read.set()
            return message

        async def watch() -> None:
            await body_read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass
            work.cancel()

        work = asyncio.ensure_future(self._app(scope, receive_and_note, send))
        watcher = asyncio.create_task(watch())
        try:
            await asyncio.wait([work])
        finally:
            watcher.cancel()
            work.cancel()
        if not work.cancelled():
            work.result()


class BodyLimit:
    """Refuses bodies over a size, by their announcement or as they arrive.

    Sits inside the exception handlers: what it raises becomes a problem.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            if announced.isdecimal() and int(announced) > self._max_bytes:
                raise TooLarge(self._sentence())
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise TooLarge(self._sentence())
            return message

        await self._app(scope, receive_within_limit, send)

    def _sentence(self) -> str:
        return f"a request body may have {self._max_bytes:,} bytes"
