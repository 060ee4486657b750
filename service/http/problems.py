"""Convert errors to answers, in one place, as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from model.views.query import describe_fault
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
from service.inference.batcher import Closed, DeadlineExceeded
from service.telemetry.metrics import Metrics

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-ID"
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

log = logging.getLogger(__name__)


def respond(scope: Scope, error: Exception, metrics: Metrics) -> JSONResponse:
    """The response to a request whose handling raised something, which is released."""
    problem, request_id = to_problem(error), scope["state"]["request_id"]
    if problem is None:
        log.error("request %s failed", request_id, exc_info=error)
        problem = Problem("The failure was logged under this request's id.")
    release(error)
    if isinstance(problem, _REJECTIONS) and getattr(scope.get("route"), "path", "") not in PROBES:
        metrics.record_rejection(problem.slug)
    return to_response(problem, scope, request_id)


def to_response(problem: Problem, scope: Scope, request_id: str) -> JSONResponse:
    """A problem in the shape that this path's clients expect."""
    if scope["path"].removeprefix(scope.get("root_path", "")).startswith(PROTOCOL):
        return JSONResponse({"error": problem.detail}, problem.status, headers=problem.headers)
    members = {**problem.to_dict(), "request_id": request_id}
    return JSONResponse(members, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def to_problem(error: Exception) -> Problem | None:
    """Convert an error to a problem; None if it is unexpected."""
    match error:
        case Problem():
            return error
        case DeadlineExceeded():
            return TooLate(str(error))
        case Closed() | MemoryError():
            return Unavailable(str(error) or "no memory is left", retry_after_s=1)
        case HTTPException():  # of a folder of files
            is_method = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
            return MethodNotAllowed.of({"GET"}) if is_method else NotFound("no such file")
    return None


def invalid(error: ValidationError) -> Problem:
    """Make a problem of the first error in a query or a body."""
    fault = describe_fault(error)
    if fault.parameter is None:  # the body as a whole: no JSON, or not an object
        return MalformedRequest(f"the body: {fault.detail}")
    return fault
