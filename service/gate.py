"""What stands before every handler that looks at something: is there a network, is there time?

And a way past the reading of queries that were read before, which would take longer than the rest.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.inspector import Inspector
from service.negotiation import JSON
from service.problems import InvalidParameter, Problem, TooLate
from service.serving import Serving

TIMEOUT_HEADER = "X-Request-Timeout"
_TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "Seconds after which the answer is of no use; at most the service's own.",
}

_MAX_QUERIES = 256
"""Different query strings that a route remembers."""
_MAX_QUERY_BYTES = 256

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = Callable[..., Coroutine[Any, Any, Any]]


class GatedRoute(APIRoute):
    """Hands its handler the inspector, and ends it when the request's time is over.

    The limit is on making the answer; how fast the client takes it is the client's affair. FastAPI
    reads a query string once: what it made of it, which never changes, is kept for the next request
    with the same one.
    """

    def __init__(
        self,
        path: str,
        endpoint: Endpoint,
        *,
        openapi_extra: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self._look = endpoint
        self._queries: dict[bytes, BaseModel] = {}
        extra = {"parameters": [_TIMEOUT_PARAMETER], **(openapi_extra or {})}
        super().__init__(path, self._remembering(endpoint), openapi_extra=extra, **more)

    def get_route_handler(self) -> Handler:
        """Wrap what parses the request and calls the handler."""
        read_and_handle = super().get_route_handler()

        async def handle_in_time(request: Request) -> Response:
            limit_s = _limit_s(request)
            serving: Serving = request.app.state.serving
            with serving.inspector() as inspector:
                request.state.inspector = inspector
                try:
                    async with asyncio.timeout(limit_s):
                        query = self._queries.get(request.scope["query_string"])
                        if query is None:
                            return await read_and_handle(request)
                        return self._respond(await self._look(request, query))
                except TimeoutError as error:
                    raise TooLate(f"no answer within {limit_s:g} s") from error
                except HTTPException as error:
                    # FastAPI's, of whatever is raised while it reads a body
                    if isinstance(error.__cause__, Problem | ClientDisconnect):
                        raise error.__cause__ from None
                    raise
                finally:
                    del request.state.inspector  # an idle connection keeps its last request

        return handle_in_time

    def _remembering(self, endpoint: Endpoint) -> Endpoint:
        """The same endpoint; if a query is all that it reads, this remembers it."""
        if list(inspect.signature(endpoint).parameters) != ["request", "query"]:
            return endpoint

        @wraps(endpoint)
        async def look(request: Request, query: BaseModel) -> Any:
            raw = request.scope["query_string"]
            if len(raw) <= _MAX_QUERY_BYTES:
                if len(self._queries) >= _MAX_QUERIES:
                    self._queries.clear()
                self._queries[raw] = query
            return await endpoint(request, query)

        return look

    def _respond(self, answer: BaseModel | Response) -> Response:
        """As FastAPI does it."""
        if isinstance(answer, Response):
            return answer
        content = answer.model_dump_json(exclude_defaults=self.response_model_exclude_defaults)
        return Response(content, media_type=JSON)


def inspector_of(request: Request) -> Inspector:
    """The inspector of a request that came in through a `GatedRoute`."""
    inspector: Inspector = request.state.inspector
    return inspector


def _limit_s(request: Request) -> float:
    longest_s: float = request.app.state.settings.request_timeout_s
    wanted = request.headers.get(TIMEOUT_HEADER)
    if wanted is None:
        return longest_s
    try:
        wanted_s = float(wanted)
    except ValueError:
        wanted_s = math.nan
    if not 0 < wanted_s < math.inf:
        raise InvalidParameter(
            f"{TIMEOUT_HEADER} is a positive number of seconds", parameter=TIMEOUT_HEADER
        )
    return min(wanted_s, longest_s)
