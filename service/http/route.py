"""Routes: one is found for each request, checks the query, and calls its handler in time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import takewhile
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import fastapi
from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from model.views import view as views
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
from service.http.answers import (
    JSON,
    PNG,
    DeferredJson,
    JsonOrPng,
    PngResponse,
    SlowJsonOrPng,
    choose_media_type,
    render,
)
from service.http.keys import Access, Permission
from service.http.middleware import PROBES
from service.http.openapi import TIMEOUT_PARAMETER, png_answer
from service.http.request import Request, invalid

_MAX_PARAMETERS = 100
Handler = Callable[..., Awaitable[Any]]


class Query(views.Query):
    """The parameters of a query string and a path."""

    of_path: ClassVar[frozenset[str]] = frozenset()
    """Parameters that only the path may have."""


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
        self.app = self._run

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The route as an ASGI app.

        Raises:
            InvalidParameter: the request's time limit is none.
            Unavailable: nothing is loaded yet.
            RateLimited: the client has asked for too many rows.
            TooLate: it takes longer than it may.
        """
        request = Request(scope, receive, send, max_cost=self._max_cost)
        request.claim.pays = self._limited
        request.claim.charge()
        if not self._needs_models:
            response = await self._respond(request)
        else:
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
        key = (self.path, *query)
        if self._is_fixed and (known := request.engine.answers.get(key)):
            return Response(known, media_type=JSON)
        answer = await self._handler(request, *query)
        response = await render(answer, request.media_type, request.context)
        if self._is_fixed:
            request.engine.answers[key] = bytes(response.body)
        return response


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


@dataclass(frozen=True)
class Router:
    """An ASGI app: FastAPI's routes, each for those who may call it.

    FastAPI's own router would match each request again.
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
        if key := self.access.check(scope, permission):
            scope["state"]["claim"].caller = key
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
