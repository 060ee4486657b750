"""Routes: one is found for each request, checks the query, calls its handler and answers in time.

An answer is JSON or a PNG, by the `Accept` header (RFC 9110, section 12.5.1).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_type_hints

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from model.views import view as model_view
from model.views.answers import ModelAnswer
from service.errors import (
    InvalidParameter,
    MalformedRequest,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    Problem,
    RateLimited,
    TooLate,
    Unauthorized,
    Unavailable,
)
from service.http.keys import Access, Permission
from service.http.middleware import PROBES
from service.http.openapi import TIMEOUT_PARAMETER, describe, documented, png_answer
from service.http.request import JSON, PNG, Request, invalid
from service.pictures import DRAW_CPU_S
from service.pool import Crashed

if TYPE_CHECKING:  # the app makes the routes
    from service.app import Context

_MAX_PARAMETERS = 100
_MAX_ACCEPT_CHARS = 1_000
"""A header of this many characters is read and cached. Browsers send 200."""
_QUALITY = re.compile(r"0(\.\d*)?|1(\.0*)?")
"""A malformed one counts as 0."""
MODEL_HEADER = "X-Model"
"""The header that names the model of a PNG: `name; version=...`."""
NOTES_HEADER = "X-Notes"
"""The header with the notes on the answer that a PNG draws: a JSON list of sentences, in ASCII."""
Handler = Callable[..., Awaitable[Any]]
Draw = Callable[[], bytes]
"""Returns a PNG's bytes."""
Drawn = Literal["thread", "process"]
"""Where an answer is drawn: on the slow thread or, with matplotlib, in a process."""


@dataclass(frozen=True)
class Router:
    """An ASGI app: FastAPI's routes, each for those who may call it.

    FastAPI's own router would match each request a second time, after `_find`.
    """

    router: APIRouter
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request's route handle it.

        Raises:
            Unauthorized, Forbidden: see `Access.check`.
            NotFound, MethodNotAllowed: no route has the path, or none the method.
        """
        if scope["type"] != "http":
            await self.router(scope, receive, send)
            return
        route, child_scope, allowed = self._find(scope)
        scope["route"] = route
        permission: Permission | None = getattr(route, "permission", None) if route else "key"
        if api_key := self.access.check(scope, permission):
            scope["state"]["claim"].caller = api_key
        if route is None:
            raise NotFound("no such route")
        if allowed:
            raise MethodNotAllowed.of(allowed)
        scope.update(child_scope)
        await route.handle(scope, receive, send)

    def _find(self, scope: Scope) -> tuple[BaseRoute | None, Scope, set[str]]:
        """Return the route, additions to its scope, and allowed methods.

        No path: None. Path but not method: the first route of the path, and all its methods.
        """
        first, allowed = None, set[str]()
        for route in self.router.routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                return route, child_scope, set()
            if match is Match.PARTIAL:
                first = first or route
                allowed |= getattr(route, "methods", None) or set()
        return first, {}, allowed


class Route(APIRoute):
    """A route that FastAPI documents, but that runs without FastAPI's dependencies, which are slow.

    A handler takes the request and, perhaps, a query. Its annotations tell the route what to read
    and what to document; its docstring is summary and description. It returns what becomes JSON, or
    a response. With `drawn`, it returns a `ModelAnswer` and what draws that.

    Args:
        method: GET or POST.
        path: its template.
        handler: what answers.
        permission: who may call it, where keys are set.
        max_rows: of the largest request.
        problems: what the handler raises.
        needs_models: whether the handler uses `request.engine`. Such a route answers 503 until
            the bundles are loaded, and 504 if its answer is not ready by the deadline; sending the
            answer is not timed.
        drawn: where the answer is drawn, if the client prefers a PNG to JSON. What is drawn in a
            process must pickle: a function of `model`, without the request.
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
        max_rows: int = 0,
        problems: Iterable[type[Problem]] = (),
        needs_models: bool = True,
        drawn: Drawn | None = None,
        fixed: bool = False,
        openapi: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.permission = permission
        self._limited = permission == "key" and path not in PROBES
        self._max_rows = max_rows
        self._needs_models, self._drawn, self._is_fixed = needs_models, drawn, fixed
        self._handler = handler
        hints = get_type_hints(handler, include_extras=True)
        returned = hints["return"]
        self._query: type[Query] | None = hints.get("query")
        plain = isinstance(returned, type) and issubclass(returned, Response)
        self._media_types: tuple[str, ...] = (JSON,) if method == "POST" and not plain else ()
        png: dict[int | str, Any] = {}
        if drawn:
            returned, _ = get_args(returned)
            self._media_types = (JSON, PNG)
            png = png_answer("If `Accept` prefers image/png.")
        elif returned in (PngResponse, FileResponse):
            self._media_types = (PNG,) if returned is PngResponse else ()
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
        summary, description = describe(handler)
        super().__init__(
            path,
            documented(handler, description, self._query),
            operation_id=handler.__name__,
            summary=summary,
            methods=[method],
            response_model=None if plain else returned,
            response_class=returned if plain else JSONResponse,
            responses={"4XX": {}, **png},  # by which FastAPI adds none of its own; see `complete`
            openapi_extra={**headers, **(openapi or {})},
            **options,
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, in place of FastAPI.

        Raises:
            InvalidParameter: the request's time limit is not a positive number.
            NotAcceptable: the client takes no media type of the route.
            Unavailable: nothing is loaded yet.
            RateLimited: the client has asked for too many rows.
            TooLate: it takes longer than it may.
        """
        request = Request(scope, receive, send, max_rows=self._max_rows)
        if self._limited:
            request.claim.charge()
        try:
            respond = self._respond_in_time if self._needs_models else self._respond
            response = await respond(request)
        finally:
            request.claim.release_rows()  # that `Request.admit` took, and that were not computed
        await response(scope, receive, send)

    async def _respond_in_time(self, request: Request) -> Response:
        limit_s, _ = request.limit_s, request.engine  # either is a reason to refuse the request
        try:
            async with asyncio.timeout(None) as request.timeout:
                if request.method == "GET":  # else `Request.body` starts it
                    request.start_deadline()
                return await self._respond(request)
        except TimeoutError as error:
            raise TooLate(f"no answer within {limit_s:g} s") from error

    async def _respond(self, request: Request) -> Response:
        query = (_read(self._query, request),) if self._query else ()
        if not query and self._needs_models:
            _read(Query, request)  # there are no parameters
        if self._media_types:
            accept = ", ".join(request.headers.getlist("accept"))
            request.media_type = choose_media_type(accept, self._media_types)
        cache_key = (self.path, *query)
        if self._is_fixed and (known := request.engine.answers.get(cache_key)):
            return Response(known, media_type=JSON)
        response = await self._render(await self._handler(request, *query), request)
        if self._is_fixed:
            request.engine.answers[cache_key] = bytes(response.body)
        return response

    async def _render(self, answer: Any, request: Request) -> Response:
        """The answer in its media type. JSON of what is drawn has images, so it is slow."""
        if self._drawn:
            answer, draw = answer
            if request.media_type == PNG:
                return await _draw(answer, draw, self._drawn, request.context)
            return await request.context.slow.run(to_json, answer, {"Vary": "Accept"})
        if isinstance(answer, Response):
            return answer
        return to_json(answer) if isinstance(answer, BaseModel) else JSONResponse(answer)


class Query(model_view.Query):
    """The parameters of a query string and a path."""

    of_path: ClassVar[frozenset[str]] = frozenset()
    """Parameters that only the path may have."""


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


@lru_cache
def choose_media_type(accept: str, media_types: tuple[str, ...]) -> str:
    """Choose the media type that the client prefers; the first of those it prefers equally.

    The result is cached: clients send few different headers.

    Raises:
        NotAcceptable: the client takes none of them, or says so at excessive length.
    """
    if len(accept) > _MAX_ACCEPT_CHARS:
        raise NotAcceptable(f"Accept is longer than {_MAX_ACCEPT_CHARS:,} characters")
    ranges: dict[str, float] = {}
    for part in filter(str.strip, (accept or "*/*").lower().split(",")):
        media_range, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        quality = next((value.strip() for name, _, value in pairs if name.strip() == "q"), "1")
        weight = float(quality) if _QUALITY.fullmatch(quality) else 0.0
        ranges[media_range] = max(weight, ranges.get(media_range, 0.0))

    def quality_of(media_type: str) -> float:
        """Return the q-value of the most specific range that covers a type; 0 if none does."""
        patterns = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((ranges[pattern] for pattern in patterns if pattern in ranges), 0.0)

    best = max(media_types, key=quality_of)
    if not quality_of(best):
        raise NotAcceptable(
            f"this route answers with {' or '.join(media_types)}, not with {accept}"
        )
    return best


class PngResponse(Response):
    """A PNG. It is the answer of routes that have no JSON."""

    media_type = PNG


def to_json(answer: BaseModel, headers: dict[str, str] | None = None) -> Response:
    """Write an answer, which takes milliseconds if it is large."""
    return Response(answer.model_dump_json(), 200, headers, JSON)


async def _draw(answer: ModelAnswer, draw: Draw, drawn: Drawn, context: Context) -> Response:
    headers = {"Vary": "Accept", MODEL_HEADER: f"{answer.model}; version={answer.version}"}
    if answer.notes:
        headers[NOTES_HEADER] = json.dumps(answer.notes)
    if drawn == "thread":
        return PngResponse(await context.slow.run(draw), headers=headers)
    try:
        _, png = await context.drawing.run(DRAW_CPU_S, draw)
    except (Crashed, MemoryError) as error:
        text = f"drawing took more memory or CPU time than it may ({DRAW_CPU_S:g} s), or crashed"
        raise Unavailable(text, retry_after_s=1) from error
    return PngResponse(png, headers=headers)
