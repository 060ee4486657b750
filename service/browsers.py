"""What browsers are told: which pages may do what, and which other sites may ask."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Receive, Scope, Send

from service.access import KEY_HEADER
from service.gate import TIMEOUT_HEADER
from service.middleware import HttpMiddleware
from service.problems import REQUEST_ID

CONTENT_SECURITY_POLICY = "Content-Security-Policy"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""Everything from this service alone, and nothing inline."""
_PAGE_HEADERS = {
    CONTENT_SECURITY_POLICY: PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class SecurityHeaders(HttpMiddleware):
    """Adds security headers: those of pages where the answer is HTML and does not bring its own."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if headers.get("content-type", "").startswith("text/html"):
                    for name, value in _PAGE_HEADERS.items():
                        headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """What lets pages of other origins ask; nothing where there are none."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", KEY_HEADER, REQUEST_ID, TIMEOUT_HEADER],
            expose_headers=["Retry-After", "Server-Timing", REQUEST_ID],
        )
    ]
