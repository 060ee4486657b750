"""Every way a request can fail, as RFC 9457 problem details."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.batcher import Closed, Full

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-ID"
PROBES = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes that are asked every few seconds: neither logged nor counted as rejected."""

log = logging.getLogger(__name__)


class Problem(Exception):
    """A failure with its HTTP status; each subclass is a stable `type`.

    Args:
        detail: what is wrong with this request, for its sender.
        parameter: name of the parameter at fault.
        retry_after_s: when trying again may help, in seconds.
    """

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "The service failed"

    def __init__(
        self, detail: str, *, parameter: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.parameter = parameter
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """What the answer's headers say of it."""
        wait_s = self.retry_after_s
        return {} if wait_s is None else {"Retry-After": str(math.ceil(wait_s))}

    def to_dict(self) -> dict[str, Any]:
        """The problem as JSON-ready values."""
        return details(
            self.status, self.slug, self.title, detail=self.detail, parameter=self.parameter
        )


class MalformedRequest(Problem):
    """The body is not what its content type says, or lacks the picture."""

    status = HTTPStatus.BAD_REQUEST
    slug = "malformed-request"
    title = "The request is malformed"


class Unauthorized(Problem):
    """No API key, or one that the service does not know."""

    status = HTTPStatus.UNAUTHORIZED
    slug = "unauthorized"
    title = "An API key is needed"

    @property
    def headers(self) -> dict[str, str]:
        """Which scheme to use (RFC 9110, section 11.6.1)."""
        return {"WWW-Authenticate": 'Bearer realm="capsnet-service"'}


class UnknownModel(Problem):
    """No bundle of that name is loaded."""

    status = HTTPStatus.NOT_FOUND
    slug = "unknown-model"
    title = "There is no such model"


class NotAcceptable(Problem):
    """The answer does not exist in any of the media types that were asked for."""

    status = HTTPStatus.NOT_ACCEPTABLE
    slug = "not-acceptable"
    title = "There is no answer of that media type"


class BundleRefused(Problem):
    """Not all bundles could be loaded anew; those that were served before still are."""

    status = HTTPStatus.CONFLICT
    slug = "bundle-refused"
    title = "A bundle cannot be loaded"


class NotOffered(Problem):
    """The model's network cannot do this; its entry in `GET /models` says what it offers."""

    status = HTTPStatus.CONFLICT
    slug = "not-offered"
    title = "Not supported by this model"


class TooLarge(Problem):
    """The body, a picture or their number is over a limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    slug = "too-large"
    title = "The request is too large"


class UnsupportedFormat(Problem):
    """Not a picture format, or not a content type, that the service reads."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    slug = "unsupported-format"
    title = "The format is not supported"


class UnreadablePicture(Problem):
    """The picture is truncated or corrupt."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    slug = "unreadable-picture"
    title = "The picture cannot be read"


class InvalidParameter(Problem):
    """A parameter is missing, unknown, of the wrong type or out of range."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    slug = "invalid-parameter"
    title = "A parameter is invalid"


class Busy(Problem):
    """More work waits than the service takes in; try again after `Retry-After` seconds."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    slug = "busy"
    title = "Too much work is waiting"


class Unavailable(Problem):
    """The service is starting or draining, or has failed; another instance may answer."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    slug = "unavailable"
    title = "The service takes no requests"


class TooLate(Problem):
    """The answer was not ready within the request's time."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    slug = "too-late"
    title = "The time is over"


_REJECTIONS = (Unauthorized, Busy, Unavailable, TooLate)
"""Requests that were well formed, but not taken or not answered in time."""


def details(status: int, slug: str, title: str, **more: Any) -> dict[str, Any]:
    """Problem details; members that are None are left out."""
    members = {"type": f"urn:capsnet:problem:{slug}", "title": title, "status": int(status), **more}
    return {key: value for key, value in members.items() if value is not None}


def install(app: FastAPI) -> None:
    """Answer with problems what FastAPI would answer in its own way."""
    app.add_exception_handler(RequestValidationError, answer)
    app.add_exception_handler(HTTPException, answer)


async def answer(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request whose handling raised something, which is released."""
    if isinstance(error, HTTPException):
        release(error)
        return _answer(request, _http_details(error), error.headers)
    problem = _to_problem(error)
    if problem is None:
        log.error("request %s failed", request.state.request_id, exc_info=error)
        problem = Problem("The failure was logged under this request's id.")
    release(error)
    if isinstance(problem, _REJECTIONS) and request.url.path not in PROBES:
        request.app.state.metrics.note_rejection(problem.slug)
    return _answer(request, problem.to_dict(), problem.headers)


def release(error: BaseException | None) -> None:
    """Let go of the calls that an error came through, and of the pictures in their hands.

    Where one of them holds the error, only the garbage collector would find them, much later.
    """
    while error is not None:
        before = error.__cause__ or error.__context__
        error.__traceback__ = error.__cause__ = error.__context__ = None
        error = before


def _to_problem(error: Exception) -> Problem | None:
    match error:
        case Problem():
            return error
        case Full():
            return Busy(str(error), retry_after_s=error.retry_after_s)
        case Closed():
            return Unavailable(str(error), retry_after_s=1)
        case RequestValidationError():
            return _invalid(error.errors()[0])
        case _:
            return None


def _invalid(fault: dict[str, Any]) -> Problem:
    place, *path = fault["loc"]
    names = [part for part in path if isinstance(part, str)]
    if place == "body" and not names:  # the body as a whole: no JSON, or not an object
        return MalformedRequest(f"the body: {fault['msg']}")
    where = ".".join(map(str, path))
    return InvalidParameter(f"{where}: {fault['msg']}", parameter=names[0])


def _http_details(error: HTTPException) -> dict[str, Any]:
    phrase = HTTPStatus(error.status_code).phrase
    slug = phrase.lower().replace(" ", "-")
    detail = error.detail if error.detail != phrase else None
    return details(error.status_code, slug, phrase, detail=detail)


def _answer(
    request: Request, members: dict[str, Any], headers: Mapping[str, str] | None
) -> JSONResponse:
    members["request_id"] = request.state.request_id
    return JSONResponse(members, members["status"], headers=headers, media_type=MEDIA_TYPE)
