"""Match each request with its route, once, and check its key before the route handles it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fastapi import APIRouter
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from service.errors import MethodNotAllowed, NotFound
from service.http.keys import Access, Permission


class Found(NamedTuple):
    """The route of a request."""

    route: BaseRoute | None
    """The first of this path and method, else the first of this path; None for other paths."""
    child_scope: Scope
    """What the route adds to the request's scope."""
    allowed: frozenset[str]
    """The methods of the path's routes, where none has the request's method."""

    @property
    def permission(self) -> Permission | None:
        """Who may call it; None where the route does not say so."""
        return getattr(self.route, "permission", None) if self.route else "key"


def find_route(routes: Iterable[BaseRoute], scope: Scope) -> Found:
    """Find the route of a request."""
    first, allowed = Found(None, {}, frozenset()), set[str]()
    for route in routes:
        match, child_scope = route.matches(scope)
        if match is Match.FULL:
            return Found(route, child_scope, frozenset())
        if match is Match.PARTIAL:
            first = first if first.route else Found(route, child_scope, frozenset())
            allowed |= getattr(route, "methods", None) or set()
    return first._replace(allowed=frozenset(allowed))


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
        route, child_scope, allowed = found = find_route(self.router.routes, scope)
        scope["route"] = route
        if key := self.access.check(scope, found.permission):
            scope["state"]["claim"].caller = key
        if route is None:
            raise NotFound("no such route")
        if allowed:
            raise MethodNotAllowed.of(allowed)
        scope.update(child_scope)
        await route.handle(scope, receive, send)
