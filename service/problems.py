"""Every way a request can fail, as RFC 9457 problem details."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.batcher import Closed, Full

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-ID"

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
    """The service is draining, or has lost its device; another instance may answer."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    slug = "unavailable"
    title = "The service takes no requests"


class TooLate(Problem):
    """The answer was not ready within the request's time."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    slug = "too-late"
    title = "The time is over"


def details(status: int, slug: str, title: str, **more: Any) -> dict[str, Any]:
    """Problem details; members that are None are left out."""
    members = {"type": f"urn:capsnet:problem:{slug}", "title": title, "status": int(status), **more}
    return {key: value for key, value in members.items() if value is not None}


def install(app: FastAPI) -> None:
    """Answer every exception of the app with a problem."""
    app.add_exception_handler(Problem, _answer_problem)
    app.add_exception_handler(Full, _answer_full)
    app.add_exception_handler(Closed, _answer_closed)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(Exception, _answer_unexpected)


async def _answer_problem(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, Problem)
    if isinstance(problem, Busy | Unavailable | TooLate):
        request.app.state.metrics.note_rejection(problem.slug)
    wait_s = problem.retry_after_s
    headers = None if wait_s is None else {"Retry-After": str(math.ceil(wait_s))}
    return _answer(request, problem.to_dict(), headers=headers)


async def _answer_full(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Full)
    return await _answer_problem(request, Busy(str(error), retry_after_s=error.retry_after_s))


async def _answer_closed(request: Request, error: Exception) -> JSONResponse:
    return await _answer_problem(request, Unavailable(str(error), retry_after_s=1))


async def _answer_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place, *path = first["loc"]
    names = [part for part in path if isinstance(part, str)]
    if place == "body" and not names:  # the body as a whole: no JSON, or not an object
        return _answer(request, MalformedRequest(f"the body: {first['msg']}").to_dict())
    where = ".".join(map(str, path))
    problem = InvalidParameter(f"{where}: {first['msg']}", parameter=names[0])
    return _answer(request, problem.to_dict())


async def _answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    slug = phrase.lower().replace(" ", "-")
    detail = error.detail if error.detail != phrase else None
    return _answer(
        request, details(error.status_code, slug, phrase, detail=detail), headers=error.headers
    )


async def _answer_unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("request %s failed", request.state.request_id, exc_info=error)
    detail = "The failure was logged under this request's id."
    return _answer(request, details(500, Problem.slug, Problem.title, detail=detail))


def _answer(request: Request, members: dict[str, Any], *, headers: Any = None) -> JSONResponse:
    members["request_id"] = request.state.request_id
    # The middleware does not see answers to unexpected exceptions.
    headers = {**(headers or {}), REQUEST_ID: request.state.request_id}
    return JSONResponse(members, members["status"], headers=headers, media_type=MEDIA_TYPE)
