"""A route: pydantic validates the query, then the handler is called, within the time limit."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from itertools import takewhile
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

import fastapi
from fastapi import Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from model.bundle import Manifest
from model.views import query as views
from model.views.answers import ModelAnswer
from service.errors import (
    InvalidParameter,
    MalformedRequest,
    NotAcceptable,
    Problem,
    RateLimited,
    TooLate,
    Unauthorized,
    Unavailable,
)
from service.http.keys import Permission
from service.http.middleware import MODEL_HEADER, NOTES_HEADER
from service.http.negotiation import JSON, PNG, choose_media_type
from service.http.openapi import TIMEOUT_PARAMETER, png_answer
from service.http.problems import PROBES, invalid
from service.http.request import Request
from service.pictures import DRAW_CPU_S
from service.pool import Crashed

_MAX_PARAMETERS = 100
Answer = TypeVar("Answer", bound=BaseModel)
Drawn = TypeVar("Drawn", bound=ModelAnswer)
Handler = Callable[..., Awaitable[Any]]


class Query(views.Query):
    """The parameters of a query string and a path."""

    of_path: ClassVar[frozenset[str]] = frozenset()
    """Parameters that only the path may have."""


class PngResponse(Response):
    """A PNG. It is the answer of routes that have no JSON."""

    media_type = PNG


@dataclass(frozen=True)
class DeferredJson(Generic[Answer]):
    """JSON that the route serialises after the handler returns and before the deadline."""

    answer: Answer
    large: bool = field(default=False, kw_only=True)
    """Whether serialising takes long: it then runs on the slow thread."""


@dataclass(frozen=True)
class JsonOrPng(DeferredJson[Drawn]):
    """JSON or a PNG. Only the requested one is made. The notes of a PNG are in a header."""

    manifest: Manifest
    draw: Callable[[], bytes]
    """Returns the PNG's bytes; called on a thread."""


class SlowJsonOrPng(JsonOrPng[Drawn]):
    """JSON or a PNG that takes long to draw. It is drawn in a process.

    Its `draw` must pickle: a `partial` of a module's function, without the request.
    """


class Route(APIRoute):
    """A route that FastAPI documents, but that runs without FastAPI's dependencies, which are slow.

    A handler takes the request and, perhaps, a query. Its annotations tell the route what to read,
    which media types it has and what to document; its docstring is summary and description. An
    answer may be a model, DeferredJson, JsonOrPng or a response.

    Args:
        method: GET or POST.
        path: its template.
        handler: what answers.
        permission: who may call it, where keys are set.
        max_cost: the rows of the most expensive request.
        problems: what the handler raises.
        needs_models: whether the handler uses `request.engine`. Such a route answers 503 until
            the bundles are loaded, and 504 if its answer is not ready by the deadline; sending the
            answer is not timed.
        fixed: whether the answer is JSON that only a reload changes: it is serialised once.
        openapi: what FastAPI cannot read off the handler.
        options: for FastAPI's route.
    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        permission: Permission = "key",
        max_cost: int = 0,
        problems: Iterable[type[Problem]] = (),
        needs_models: bool = True,
        fixed: bool = False,
        openapi: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.permission = permission
        self._limited = permission == "key" and path not in PROBES
        self._max_cost = max_cost
        self._needs_models, self._is_fixed = needs_models, fixed
        hints = get_type_hints(handler, include_extras=True)
        returned = hints["return"]
        self._handler = handler
        self._query: type[Query] | None = hints.get("query")
        plain = isinstance(returned, type) and issubclass(returned, Response)
        self._media_types: tuple[str, ...] = (JSON,) if method == "POST" and not plain else ()
        png: dict[int | str, Any] = {}
        if get_origin(returned) in (DeferredJson, JsonOrPng, SlowJsonOrPng):
            if get_origin(returned) is not DeferredJson:
                self._media_types, png = (
                    (JSON, PNG),
                    png_answer("If `Accept` prefers image/png."),
                )
            (returned,) = get_args(returned)
        elif returned is PngResponse:
            self._media_types, png = (PNG,), png_answer("The only answer.")
        elif returned is FileResponse:
            png = png_answer("The only answer.")
        self.problems: set[type[Problem]] = {Problem, *problems}
        own: list[tuple[tuple[type[Problem], ...], object]] = [
            ((InvalidParameter, Unavailable, TooLate), needs_models),
            ((InvalidParameter,), self._query),
            ((NotAcceptable,), self._media_types),
            ((Unauthorized,), options.get("dependencies")),
            ((RateLimited,), self._limited),
            ((MalformedRequest,), "{" in path),
        ]
        for raised, applies in own:
            self.problems.update(raised if applies else ())
        headers = {"parameters": [TIMEOUT_PARAMETER]} if needs_models else {}
        summary, description = _describe(handler)
        super().__init__(
            path,
            _documented(handler, description, self._query),
            operation_id=handler.__name__,
            summary=summary,
            methods=[method],
            response_model=None if plain else returned,
            response_class=returned if plain else JSONResponse,
            responses={"4XX": {}, **png},  # by which FastAPI adds none of its own; see `complete`
            openapi_extra={**headers, **(openapi or {})},
            **options,
        )
        self.app = self._run_in_time if needs_models else self._run

    def _begin(self, scope: Scope, receive: Receive, send: Send) -> Request:
        request = Request(scope, receive, send, max_cost=self._max_cost)
        request.claim.is_charged = self._limited
        request.claim.charge()
        return request

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The route as an ASGI app.

        Raises:
            RateLimited: the client has asked for too many rows.
        """
        request = self._begin(scope, receive, send)
        response = await self._respond(request)
        await response(scope, receive, send)

    async def _run_in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The route as an ASGI app, with the networks that are loaded.

        Raises:
            InvalidParameter: the request's time limit is none.
            Closed: nothing is loaded yet.
            RateLimited: the client has asked for too many rows.
            TooLate: it takes longer than it may.
        """
        request = self._begin(scope, receive, send)
        limit_s = request.limit_s
        request.engine = request.context.engine
        try:
            async with asyncio.timeout(None) as request.timeout:
                if scope["method"] == "GET":  # else `Request.body` starts it
                    request.start_deadline()
                response = await self._respond(request)
        except TimeoutError as error:
            raise TooLate(f"no answer within {limit_s:g} s") from error
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        query = (_read(self._query, request),) if self._query else ()
        if not query and self._needs_models:
            _read(Query, request)  # there are no parameters
        if self._media_types:
            accept = ", ".join(request.headers.getlist("accept"))
            request.media_type = choose_media_type(accept, self._media_types)
        if self._is_fixed:
            return await self._respond_once(request, *query)
        return await _render(await self._handler(request, *query), request)

    async def _respond_once(self, request: Request, *query: Query) -> Response:
        answers, key = request.engine.answers, (self.path, *query)
        if key not in answers:
            response = await _render(await self._handler(request, *query), request)
            answers[key] = bytes(response.body)
        return Response(answers[key], media_type=JSON)


def _read(model: type[Query], request: Request) -> Query:
    """The query.

    Raises:
        InvalidParameter: a parameter is missing, unknown or wrong.
    """
    return _parse(model, request.scope["query_string"], tuple(request.path_params.items()))


@lru_cache
def _parse(model: type[Query], query_string: bytes, of_path: tuple[tuple[str, Any], ...]) -> Query:
    """Parse a query string. The result is cached, because clients repeat theirs."""
    if query_string.count(b"&") >= _MAX_PARAMETERS:
        raise InvalidParameter(f"a query has at most {_MAX_PARAMETERS} parameters")
    query, path = QueryParams(query_string), dict(of_path)
    known = model.model_fields.keys() - path.keys()
    for name in query.keys() - (known - model.of_path):
        raise InvalidParameter(f"unknown parameter {name[:64]}", parameter=name[:64])
    values: dict[str, Any] = dict(query)
    lists = {name: query.getlist(name) for name in model.lists & values.keys()}
    try:
        return model.model_validate({**values, **lists, **path})
    except ValidationError as error:
        raise invalid(error) from error


def _describe(handler: Handler) -> tuple[str, str]:
    """Summary and description of a route: the docstring's paragraphs without its sections."""
    summary, *paragraphs = (inspect.getdoc(handler) or "").split("\n\n")
    prose = takewhile(lambda one: not one.startswith(("Args:", "Raises:")), paragraphs)
    return summary.removesuffix("."), "\n\n".join(" ".join(one.split()) for one in prose)


def _documented(handler: Handler, description: str, query: type[Query] | None) -> Handler:
    """Make a function with the handler's types for FastAPI to document. It is never called."""

    @wraps(handler)
    async def endpoint() -> None:
        raise NotImplementedError

    endpoint.__doc__ = description
    annotation = Annotated[query, fastapi.Query()] if query else None
    parameter = inspect.Parameter("query", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    endpoint.__signature__ = inspect.Signature([parameter] if query else [])  # type: ignore[attr-defined]
    return endpoint


def _to_json(answer: BaseModel, headers: dict[str, str] | None = None) -> Response:
    return Response(answer.model_dump_json(), 200, headers, JSON)


async def _render(answer: Any, request: Request) -> Response:
    """The media type that was asked for. What takes milliseconds is not done on the event loop."""
    if isinstance(answer, Response):
        return answer
    if not isinstance(answer, DeferredJson):
        return _to_json(answer) if isinstance(answer, BaseModel) else JSONResponse(answer)
    headers = {"Vary": "Accept"} if isinstance(answer, JsonOrPng) else {}
    if isinstance(answer, JsonOrPng) and request.media_type == PNG:
        headers[MODEL_HEADER] = f"{answer.manifest.name}; version={answer.manifest.version}"
        if answer.answer.notes:
            headers[NOTES_HEADER] = json.dumps(answer.answer.notes)
        if not isinstance(answer, SlowJsonOrPng):
            return PngResponse(await request.context.slow.run(answer.draw), headers=headers)
        try:
            _, drawn = await request.context.drawing.run(DRAW_CPU_S, answer.draw)
        except (Crashed, MemoryError) as error:
            text = (
                f"drawing took more memory or CPU time than it may ({DRAW_CPU_S:g} s), or crashed"
            )
            raise Unavailable(text, retry_after_s=1) from error
        return PngResponse(drawn, headers=headers)
    if answer.large or isinstance(answer, JsonOrPng):
        return await request.context.slow.run(_to_json, answer.answer, headers)
    return _to_json(answer.answer, headers)
