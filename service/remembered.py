"""A way past FastAPI's routing and reading of queries, which take longer than most of the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.middleware import HttpMiddleware

Respond = Callable[[Request], Awaitable[Response]]
MAX_LINES = 1024
"""How many request lines are remembered."""
_MAX_LENGTH = 256
"""Of a path and a query string together."""


class Ways:
    """What FastAPI made of request lines, which never changes: a route, and a query for it."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str, bytes], tuple[BaseRoute, Respond]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._ways)

    def of(self, scope: Scope) -> tuple[BaseRoute, Respond] | None:
        """The route of a request and what responds to it, if there was one with the same line."""
        return self._ways.get((scope["method"], scope["path"], scope["query_string"]))

    def note(self, scope: Scope, respond: Respond) -> None:
        """Remember what responds to requests with the line of one that was routed."""
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if len(path) + len(query) <= _MAX_LENGTH:
            if len(self._ways) >= MAX_LINES:
                self._ways.clear()
            self._ways[method, path, query] = scope["route"], respond


class Shortcut(HttpMiddleware):
    """Takes requests the ways that are remembered; all others through the app."""

    def __init__(self, app: ASGIApp, *, ways: Ways) -> None:
        super().__init__(app)
        self._ways = ways

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        way = self._ways.of(scope)
        if way is None:
            await self.app(scope, receive, send)
            return
        scope["route"], respond = way
        response = await respond(Request(scope, receive, send))
        await response(scope, receive, send)
