"""The middleware of every request: its id, limits, times, headers, errors and log line."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import (
    Busy,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    RateLimited,
    TooLate,
    Unauthorized,
    Unavailable,
    release,
)
from service.http.answers import MODEL_HEADER, NOTES_HEADER
from service.http.context import Context
from service.http.keys import KEY_HEADER, Sites
from service.http.request import TIMEOUT_HEADER, Body
from service.telemetry import logs

log = logging.getLogger(__name__)
PROBLEM = "application/problem+json"
"""The media type of problem details (RFC 9457)."""
REQUEST_ID = "X-Request-ID"
TENSOR_HEADER = "Inference-Header-Content-Length"
"""The header with the number of bytes of JSON before the tensors (Open Inference Protocol)."""
_SENT = [
    *("Content-Type", "Content-Encoding", KEY_HEADER, REQUEST_ID, TIMEOUT_HEADER, TENSOR_HEADER),
]
_ANSWERED = ["Retry-After", "Server-Timing", MODEL_HEADER, NOTES_HEADER, REQUEST_ID, TENSOR_HEADER]
PROTOCOL = "/v2"
"""The prefix of the Open Inference Protocol's paths, whose errors have another shape."""
_GRPC = "/inference.GRPCInferenceService"
PROBES = frozenset(
    {
        *("/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"),
        *(f"{_GRPC}/ServerLive", f"{_GRPC}/ServerReady"),
    }
)
"""The routes of frequent probes, which are neither logged nor counted as rejected."""
_REJECTIONS = (Unauthorized, Busy, RateLimited, Unavailable, TooLate)
"""Problems of valid requests that were refused or not answered in time."""
CLIENT_LEFT = 499
"""The status that is logged for a request whose client did not wait for an answer, as in nginx."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of pages: everything comes from this service, and nothing is inline.
"""
_PAGE_HEADERS = {
    b"content-security-policy": PAGE_POLICY.encode(),
    b"cross-origin-opener-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
}
"""Security headers of HTML pages that bring none of their own."""
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Statuses that are logged with the client's address."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNKNOWN = "unknown"
"""The route that is logged for a path that no route has."""
_MOUNTED = "app_root_path"
"""Starlette sets this key in the scope of requests for files of a mounted folder."""


def cross_origin(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Answer CORS requests of the allowed origins, if there are any."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", *_SENT],
        expose_headers=_ANSWERED,
    )


@dataclass
class Middleware:
    """Gives each request an id, limits, headers and a line in the log, and answers errors.

    HEAD is answered as GET without the body (RFC 9110, section 9.3.2), and `/v1/...` as `/...`.
    """

    app: ASGIApp
    context: Context

    def __post_init__(self) -> None:
        self.settings, self.metrics = self.context.settings, self.context.metrics
        self.sites = Sites(self.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Other events, such as the lifespan's, pass through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        method, status = scope["method"], 0
        headers = dict(scope["headers"])
        request_id = self._identify(scope, headers)
        scope = _as_routed(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                sent = message.get("headers", ())
                own = dict(sent)
                claim.begin_answer(message["status"], own)
                body.stop_watching()
                status = message["status"]
                seconds["total"] = time.perf_counter() - started
                message["headers"] = [*sent, *self._headers(own, request_id, seconds)]
            elif method == "HEAD":
                message["body"] = b""
            await send(message)

        claim = scope["state"]["claim"] = self.context.admission.claim(_address(scope))
        seconds = claim.seconds
        announced = headers.get(b"content-length", b"")
        body = Body(claim, self.settings, receive, announced, scope.get("extensions", ()))
        self.metrics.begin_request()
        try:
            with claim:
                self.sites.check(method, headers)
                _check_path(scope)
                await self.app(scope, body.receive, send_with_headers)
        except (asyncio.CancelledError, ClientDisconnect) as cause:
            if not isinstance(cause, ClientDisconnect) and not body.absorb_cancellation():
                raise
            status = status or CLIENT_LEFT
        except Exception as error:
            if status:
                raise
            await self._respond(scope, error)(scope, receive, send_with_headers)
        finally:
            body.stop_watching()
            seconds.setdefault("total", time.perf_counter() - started)
            self.metrics.end_request()
            if status:  # answered, or the client left; logged after the answer
                self._log_and_count(method, scope, status, seconds)

    def _identify(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str:
        """The request's id, the sender's if well formed, or a new one."""
        accepted = _ACCEPTED_ID.fullmatch(headers.get(b"x-request-id", b""))
        request_id = accepted[0].decode() if accepted else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id
        logs.request_id.set(request_id)
        return request_id

    def _headers(
        self, own: Mapping[bytes, bytes], request_id: str, seconds: dict[str, float]
    ) -> list[tuple[bytes, bytes]]:
        """The headers that every answer has, in addition to its own."""
        timing = ", ".join([f"{stage};dur={1e3 * s:.2f}" for stage, s in seconds.items()])
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"server-timing", timing.encode()),
        ]
        if own.get(b"content-type", b"").startswith(b"text/html"):
            headers += ((name, _PAGE_HEADERS[name]) for name in _PAGE_HEADERS.keys() - own.keys())
        if self.context.draining:
            headers.append((b"connection", b"close"))
        return headers

    def _respond(self, scope: Scope, error: Exception) -> JSONResponse:
        """The answer to a request whose handling raised something, which is released."""
        request_id = scope["state"]["request_id"]
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
            self.metrics.record_rejection(problem.slug)
        members = {**problem.to_dict(), "request_id": request_id}
        if scope["path"].removeprefix(scope.get("root_path", "")).startswith(PROTOCOL):
            return JSONResponse({"error": problem.detail}, problem.status, problem.headers)
        return JSONResponse(members, problem.status, problem.headers, PROBLEM)

    def _log_and_count(
        self, method: str, scope: Scope, status: int, seconds: dict[str, float]
    ) -> None:
        # The path's template, or the mounted folder's; never what the client typed.
        if _MOUNTED in scope:
            route = scope["root_path"].removeprefix(scope[_MOUNTED])
        else:
            route = getattr(scope.get("route"), "path", _UNKNOWN)
        is_routed = route != _UNKNOWN and status != HTTPStatus.METHOD_NOT_ALLOWED
        counted = method if is_routed else "other"
        self.metrics.record_request(counted, route if is_routed else _UNKNOWN, status, seconds)
        refused = status in _REFUSED
        quiet = _MOUNTED in scope and status < 400
        level = logging.WARNING if refused else logging.DEBUG if quiet else logging.INFO
        if (route not in PROBES or refused) and logs.ACCESS.isEnabledFor(level):
            times = {f"{stage}_ms": round(1000 * s, 2) for stage, s in seconds.items()}
            fields = {"route": route, "status": status, **times}
            if refused:
                fields["client"] = _address(scope)
            shown = "unknown route" if route == _UNKNOWN else route
            logs.ACCESS.log(level, "%s %s %s", method, shown, status, extra={"fields": fields})


def _address(scope: Scope) -> str:
    """The client's address, as a trusted proxy forwards it (uvicorn)."""
    return str((scope.get("client") or ("unknown",))[0])


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
