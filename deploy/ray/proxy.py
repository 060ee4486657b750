"""What Ray's proxies answer where no replica does."""

from __future__ import annotations

from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import Busy, Problem, TooLate, Unavailable
from service.http.problems import to_response

_OF_A_REPLICA = {b"server-timing", b"access-control-allow-methods"}
"""All answers have the first header; answers to CORS preflights have the second instead."""
_ID = b"x-request-id"
_OWN = "/-/"
"""How paths of the proxy itself begin."""


def middlewares() -> list[Middleware]:
    """What each proxy applies to all requests; Ray calls it by its name."""
    return [Middleware(Mended)]


class Mended:
    """Answers of replicas as they are, and problems with `Retry-After` in place of Ray's errors.

    Ray answers 500 to a request whose replica died, and 404 while no replica has been started. No
    request to the service changes anything, so it may be repeated.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"].startswith(_OWN):
            await self._app(scope, receive, send)
            return
        started, problem = False, None

        async def send_of_replica(message: Message) -> None:
            nonlocal started, problem
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                if not _OF_A_REPLICA.isdisjoint(headers):
                    started = True
                    message["headers"] = _once(_ID, message["headers"])
                else:
                    problem = _problem(message["status"], headers)
            if started:
                await send(message)

        await self._app(scope, receive, send_of_replica)
        if not started:
            given = dict(scope["headers"]).get(_ID, b"").decode("latin-1")
            problem = problem or Unavailable("the replica ended", retry_after_s=1)
            await to_response(problem, scope, given)(scope, receive, send)


def _problem(status: int, headers: dict[bytes, bytes]) -> Problem:
    """What is said in place of an error of Ray's."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = int(headers.get(b"retry-after", b"1"))
        return Busy("too many requests wait for a replica", retry_after_s=wait_s)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return TooLate("the answer was not ready within the time that Ray allows")
    return Unavailable("no replica takes requests", retry_after_s=1)


def _once(name: bytes, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers with the first of a name alone: both the proxy and the replica add it."""
    same = [header for header in headers if header[0].lower() == name][1:]
    return [header for header in headers if not any(header is one for one in same)]
