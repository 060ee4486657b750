"""What stands before every handler that looks at something: is there a network, is there time?"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.engine import visiting
from service.inspector import Inspector
from service.negotiation import JSON
from service.problems import InvalidParameter, Problem, TooLate
from service.remembered import RememberedLines
from service.serving import Serving
from service.waiting import Visit

TIMEOUT_HEADER = "X-Request-Timeout"
_TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "Seconds after which the answer is of no use (504), at most the service's own. "
    "Where the line would take more than 0.6 of them, the answer is 429 at once.",
}
Endpoint = Callable[..., Coroutine[Any, Any, Any]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GatedRoute(APIRoute):
    """Hands its handler the inspector, and ends it when the request's time is over.

    The limit is on making the answer; how fast the client takes it is the client's affair.
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
        extra = {"parameters": [_TIMEOUT_PARAMETER], **(openapi_extra or {})}
        super().__init__(path, self._remembering(), openapi_extra=extra, **more)

    def get_route_handler(self) -> Handler:
        """Wrap what parses the request and calls the handler."""
        read_and_handle = super().get_route_handler()

        async def handle_in_time(request: Request) -> Response:
            try:
                return await _in_time(request, read_and_handle)
            except HTTPException as error:
                # FastAPI's, of whatever is raised while it reads a body
                if isinstance(error.__cause__, Problem | ClientDisconnect):
                    raise error.__cause__ from None
                raise

        return handle_in_time

    def _remembering(self) -> Endpoint:
        """The endpoint, for FastAPI to call.

        Where it reads nothing but a query, the lines of requests are remembered that it answered.
        """
        endpoint = self._look
        if list(inspect.signature(endpoint).parameters) != ["request", "query"]:
            return endpoint

        @wraps(endpoint)
        async def look_and_remember(request: Request, query: BaseModel) -> Any:
            answer = await endpoint(request, query)
            lines: RememberedLines | None = request.app.state.lines
            if lines is not None:
                respond = partial(_in_time, handle=partial(self._respond, query))
                lines.note(request.scope, respond)
            return answer

        return look_and_remember

    async def _respond(self, query: BaseModel, request: Request) -> Response:
        """As FastAPI does it for routes like ours.

        They say no more of their answers than `response_model` and its `exclude_defaults`, and
        their dependencies only document the API keys.
        """
        answer: BaseModel | Response = await self._look(request, query)
        if isinstance(answer, Response):
            return answer
        content = answer.model_dump_json(exclude_defaults=self.response_model_exclude_defaults)
        return Response(content, media_type=JSON)


async def _in_time(request: Request, handle: Handler) -> Response:
    """Handle a request with the inspector that is in use.

    Raises:
        InvalidParameter: its limit of time is none.
        Unavailable: there is no inspector yet.
        TooLate: it takes longer than it may.
    """
    limit_s = _limit_s(request)
    visiting.set(Visit(until=time.monotonic() + limit_s))
    serving: Serving = request.app.state.serving
    with serving.inspector() as inspector:
        request.state.inspector = inspector
        try:
            async with asyncio.timeout(limit_s):
                return await handle(request)
        except TimeoutError as error:
            raise TooLate(f"no answer within {limit_s:g} s") from error
        finally:
            del request.state.inspector  # an idle connection keeps its last request


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
