"""A way past FastAPI's routing and reading of queries, which come out the same each time."""

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


class RememberedLines:
    """The route of each request line that was answered, and what answers it with the same query."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], tuple[BaseRoute, Respond]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def find(self, scope: Scope) -> tuple[BaseRoute, Respond] | None:
        """What is known of a request's line, if anything."""
        return self._known.get((scope["method"], scope["path"], scope["query_string"]))

    def note(self, scope: Scope, respond: Respond) -> None:
        """Remember what answers requests with the line of this one, which FastAPI has routed."""
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if len(path) + len(query) <= _MAX_LENGTH:
            if len(self._known) >= MAX_LINES:
                self._known.clear()
            self._known[method, path, query] = scope["route"], respond


class Shortcut(HttpMiddleware):
    """Answers requests whose line is remembered; the others go to the app.

    Args:
        app: what is wrapped.
        lines: what is remembered.
    """

    def __init__(self, app: ASGIApp, *, lines: RememberedLines) -> None:
        super().__init__(app)
        self._lines = lines

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        known = self._lines.find(scope)
        if known is None:
            await self.app(scope, receive, send)
            return
        scope["route"], respond = known
        response = await respond(Request(scope, receive, send))
        await response(scope, receive, send)
