"""Errors become answers in one place, as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.errors import (
    Busy,
    InvalidParameter,
    MalformedRequest,
    Problem,
    TooLate,
    Unauthorized,
    Unavailable,
    details,
    release,
)
from service.inference.job import Closed, DeadlineExceeded, QueueFull

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-ID"
PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes that are asked every few seconds: neither logged nor counted as rejected."""
_REJECTIONS = (Unauthorized, Busy, Unavailable, TooLate)
"""Requests that were well formed, but not taken or not answered in time."""

log = logging.getLogger(__name__)


class ProblemDetails(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str | None = None
    parameter: str | None = Field(None, description="The parameter at fault.")
    request_id: str | None = None


def answer(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request whose handling raised something, which is released."""
    problem = to_problem(error)
    if problem is None and not isinstance(error, HTTPException):
        log.error("request %s failed", request.state.request_id, exc_info=error)
        problem = Problem("The failure was logged under this request's id.")
    release(error)
    if isinstance(problem, _REJECTIONS) and request.url.path not in PROBES:
        request.app.state.metrics.note_rejection(problem.slug)
    if problem is None:
        assert isinstance(error, HTTPException)
        members, headers = _describe(request, error)
    else:
        members, headers = problem.to_dict(), problem.headers
    members["request_id"] = request.state.request_id
    return JSONResponse(members, members["status"], headers=headers, media_type=MEDIA_TYPE)


def to_problem(error: Exception) -> Problem | None:
    """The problem that an error is; None if nobody foresaw it."""
    match error:
        case Problem():
            return error
        case QueueFull():
            return Busy(str(error), retry_after_s=error.retry_after_s)
        case DeadlineExceeded():
            return TooLate(str(error))
        case Closed():
            return Unavailable(str(error), retry_after_s=1)
    return None


def invalid(error: ValidationError) -> Problem:
    """What is wrong with a query or a body, by its first error."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    names = [part for part in fault["loc"] if isinstance(part, str)]
    if not names:  # the body as a whole: no JSON, or not an object
        return MalformedRequest(f"the body: {fault['msg']}")
    return InvalidParameter(f"{where}: {fault['msg']}", parameter=names[0])


def _describe(request: Request, error: HTTPException) -> tuple[dict[str, Any], dict[str, str]]:
    """Members and headers where there is no such route, or not with this method."""
    phrase = HTTPStatus(error.status_code).phrase
    detail = error.detail if error.detail != phrase else None
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    slug = phrase.lower().replace(" ", "-")
    return details(error.status_code, slug, phrase, detail=detail), headers


def _methods(request: Request) -> set[str]:
    """All methods of the routes of a path; those of files where it has no route."""
    fitting = [one for one in request.app.routes if one.matches(request.scope)[0] != Match.NONE]
    methods = {method for route in fitting for method in getattr(route, "methods", ())}
    return methods | {"HEAD"} if "GET" in methods else methods or {"GET", "HEAD"}
