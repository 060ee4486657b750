"""The middleware of every request: its id, claim and body, and its answer, errors and log line."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Container, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.admission import NO_ROOM, Claim
from service.errors import (
    Busy,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    RateLimited,
    TooLarge,
    TooLate,
    Unauthorized,
    Unavailable,
    UploadTimeout,
    release,
)
from service.http.keys import Sites
from service.settings import Settings
from service.telemetry import logs

if TYPE_CHECKING:  # the app makes the middleware
    from service.app import Context

log = logging.getLogger(__name__)
PROBLEM = "application/problem+json"
"""The media type of problem details (RFC 9457)."""
REQUEST_ID = "X-Request-ID"
_GRPC = "/inference.GRPCInferenceService"
PROBES = frozenset(
    {
        *("/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"),
        *(f"{_GRPC}/ServerLive", f"{_GRPC}/ServerReady"),
    }
)
"""The routes of frequent probes, which are neither logged nor counted as rejected."""
CLIENT_LEFT = 499
"""The status that is logged for a request whose client did not wait for an answer, as in nginx."""
ARRIVES_WHOLE = "capsnet.arrives_whole"
"""The extension (ASGI) of a request whose body is seen only once all of it is there."""
MOMENT_S = 0.2
"""gRPC delivers a message only when it is complete. While one arrives, it counts as 0 bytes for
this long, and after that as `max_body_bytes`.
"""
MAX_ADDRESS_CHARS = 45
"""The longest IPv6 address. Thousands of addresses may be counted."""
_PROTOCOL = "/v2"
"""The prefix of the Open Inference Protocol's paths, whose errors have another shape."""
_REJECTIONS = (Unauthorized, Busy, RateLimited, Unavailable, TooLate)
"""Problems of valid requests that were refused or not answered in time."""
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Statuses that are logged with the client's address."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNKNOWN = "unknown"
"""The route that is logged for a path that no route has."""


class Middleware:
    """Gives each request an id, limits, headers and a line in the log, and answers errors.

    uvicorn calls the app, which is FastAPI's, and that calls this object: see `create_app`.

    HEAD is answered as GET without the body (RFC 9110, section 9.3.2), and `/v1/...` as `/...`.

    Args:
        app: what answers: see `service.http.route.Router`.
        context: of the process.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app, self.context = app, context
        self._metrics, self._sites = context.metrics, Sites(context.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Other events, such as the lifespan's, pass through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        method, status = scope["method"], 0
        headers = dict(scope["headers"])
        accepted = _ACCEPTED_ID.fullmatch(headers.get(b"x-request-id", b""))
        request_id = accepted[0].decode() if accepted else secrets.token_hex(16)
        logs.request_id.set(request_id)
        claim = self.context.admission.claim(_address(scope))
        scope.setdefault("state", {})["claim"] = claim
        seconds = claim.seconds
        body = Body(claim, self.context.settings, receive, headers, scope.get("extensions", ()))
        scope = _as_routed(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                sent = message.get("headers", ())
                claim.begin_answer(message["status"], dict(sent))
                status = message["status"]
                seconds["total"] = time.perf_counter() - started
                message["headers"] = [*sent, *self._headers(request_id, seconds)]
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        self._metrics.begin_request()
        try:
            with claim:  # the `current_caller` pays; its bytes are given back at the end
                self._sites.check(method, headers)
                _check_path(scope)
                await self.app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            status = status or CLIENT_LEFT
        except asyncio.CancelledError:  # by the server, when the client leaves
            status = status or CLIENT_LEFT
            raise
        except Exception as error:
            if status:
                raise
            respond = self._respond(scope, error, request_id)
            await respond(scope, receive, send_with_headers)
        finally:
            seconds.setdefault("total", time.perf_counter() - started)
            self._metrics.end_request(self.context.admission.waiting_cost)
            if status:  # answered, or the client left; logged after the answer
                self._log_and_count(method, scope, status, seconds)

    def _headers(self, request_id: str, seconds: dict[str, float]) -> list[tuple[bytes, bytes]]:
        """The headers that every answer has, in addition to its own."""
        timing = ", ".join([f"{stage};dur={1e3 * s:.2f}" for stage, s in seconds.items()])
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"server-timing", timing.encode()),
        ]
        if self.context.draining:
            headers.append((b"connection", b"close"))
        return headers

    def _respond(self, scope: Scope, error: Exception, request_id: str) -> JSONResponse:
        """The answer to a request whose handling raised something, whose traceback is dropped."""
        match error:
            case Problem():
                problem = error
            case MemoryError():
                problem = Unavailable("no memory is left", retry_after_s=1)
            case HTTPException():  # of a folder of files
                is_method = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
                problem = MethodNotAllowed.of({"GET"}) if is_method else NotFound("no such file")
            case _:
                log.error("request %s failed", request_id, exc_info=error)
                problem = Problem("The failure was logged under this request's id.")
        release(error)
        route = getattr(scope.get("route"), "path", "")
        if isinstance(problem, _REJECTIONS) and route not in PROBES:
            self._metrics.record_rejection(problem.slug)
        members = {**problem.to_dict(), "request_id": request_id}
        if scope["path"].removeprefix(scope.get("root_path", "")).startswith(_PROTOCOL):
            return JSONResponse({"error": problem.detail}, problem.status, problem.headers)
        return JSONResponse(members, problem.status, problem.headers, PROBLEM)

    def _log_and_count(
        self, method: str, scope: Scope, status: int, seconds: dict[str, float]
    ) -> None:
        # The path's template, or the mounted folder's; never what the client typed.
        route = getattr(scope.get("route"), "path", _UNKNOWN)
        is_routed = route != _UNKNOWN and status != HTTPStatus.METHOD_NOT_ALLOWED
        counted = method if is_routed else "other"
        self._metrics.record_request(counted, route if is_routed else _UNKNOWN, status, seconds)
        refused = status in _REFUSED
        is_file = isinstance(scope.get("route"), Mount) and status < HTTPStatus.BAD_REQUEST
        level = logging.WARNING if refused else logging.DEBUG if is_file else logging.INFO
        if (route not in PROBES or refused) and logs.ACCESS.isEnabledFor(level):
            times = {f"{stage}_ms": round(1000 * s, 2) for stage, s in seconds.items()}
            fields = {"route": route, "status": status, **times}
            if refused:
                fields["client"] = _address(scope)
            shown = "unknown route" if route == _UNKNOWN else route
            logs.ACCESS.log(level, "%s %s %s", method, shown, status, extra={"fields": fields})


def _address(scope: Scope) -> str:
    """The client's address, as a trusted proxy forwards it (uvicorn), which may be any text."""
    return str((scope.get("client") or ("unknown",))[0])[:MAX_ADDRESS_CHARS]


def _as_routed(scope: Scope) -> Scope:
    """A request by the method and the path of the route that answers it.

    `Range` is left out, as a server may ignore it (RFC 9110, section 14.2): Starlette's refusals of
    ranges are no problem details.
    """
    if any(name == b"range" for name, _ in scope["headers"]):
        kept = [header for header in scope["headers"] if header[0] != b"range"]
        scope = {**scope, "headers": kept}
    if scope["method"] == "HEAD":
        scope = {**scope, "method": "GET"}
    for root in {scope.get("root_path", ""), ""}:
        if scope["path"].startswith(f"{root}/v1/"):
            return {**scope, "path": root + scope["path"].removeprefix(f"{root}/v1")}
    return scope


def _check_path(scope: Scope) -> None:
    """Refuse control characters: a route's pattern would also match before a line break at the end.

    Raises:
        MalformedRequest: there are control characters in the path.
    """
    if _CONTROL.search(scope["path"]):
        raise MalformedRequest("the path has control characters")


class Body:
    """The body of one request as it arrives.

    Args:
        claim: counts what has arrived.
        settings: limit its size and the time for it to arrive.
        next_message: the server's `receive`, which gives the next part.
        headers: of the request.
        extensions: of the request: see `ARRIVES_WHOLE`.
    """

    def __init__(
        self,
        claim: Claim,
        settings: Settings,
        next_message: Receive,
        headers: Mapping[bytes, bytes],
        extensions: Container[str],
    ) -> None:
        self._claim, self._settings = claim, settings
        self._next_message = next_message
        self._arrives_whole = ARRIVES_WHOLE in extensions
        announced = headers.get(b"content-length", b"")
        # As few digits as any limit has: Python reads no number of thousands.
        self._announced = int(announced.lstrip(b"0")[:20] or 0) if announced.isdigit() else 0
        self._arrived = 0
        self._deadline = asyncio.get_running_loop().time() + settings.upload_timeout_s

    async def receive(self) -> Message:
        """The app's `receive`: the next part of the body.

        Raises:
            TooLarge, UploadTimeout: it is over a limit of one body.
            Busy: it does not fit next to the others.
        """
        self._check_size(self._announced)
        message = await self._next_part()
        size = len(message.get("body", b""))
        self._arrived += size
        self._check_size(self._arrived)
        self._claim.hold(size, unfinished=bool(message.get("more_body")))
        return message

    def _check_size(self, size: int) -> None:
        if size > self._settings.max_body_bytes:
            raise TooLarge(f"the request body exceeds {self._settings.max_body_bytes:,} bytes")

    async def _next_part(self) -> Message:
        """The next part, in time and unless it is refused meanwhile."""
        claim = self._claim
        try:
            if not claim.refused:
                async with asyncio.timeout_at(self._deadline) as claim.waiting:
                    message = await (
                        self._whole_message() if self._arrives_whole else self._next_message()
                    )
        except TimeoutError as error:
            if not claim.refused:
                limit_s = self._settings.upload_timeout_s
                raise UploadTimeout(f"the body did not arrive within {limit_s:g} s") from error
        finally:
            claim.waiting = None
        if claim.refused:  # in favour of others: see `Claim.refuse`
            raise Busy(NO_ROOM, retry_after_s=1)
        return message

    async def _whole_message(self) -> Message:
        """All of a body that is seen only then. Meanwhile it counts as one of the largest size."""
        receiving = asyncio.ensure_future(self._next_message())
        try:
            await asyncio.wait([receiving], timeout=MOMENT_S)
            if not receiving.done():
                # Whole messages that never arrive leave half of the budget to bodies that do.
                spare = self._settings.max_waiting_bytes // 2
                size = self._settings.max_body_bytes
                self._claim.hold(size, unfinished=True, spare_bytes=spare)
            return await receiving
        finally:
            receiving.cancel()
            self._claim.release_bytes()
