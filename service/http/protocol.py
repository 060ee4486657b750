"""HTTP/1.1 by uvicorn, for clients that offer something newer, and not for ones that stall."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

log = logging.getLogger(__name__)
_MOMENT_S = 0.2
"""What a client that has just connected may take to send its request, while the server ends."""


class Http1(HttpToolsProtocol):
    """Serves a request that offers an upgrade as if it did not (RFC 9110, section 7.8).

    Java's client, and curl with `--http2`, offer HTTP/2 with every request. The parser stops after
    the head of such a request, and uvicorn would take its body for the next one. Here the head is
    parsed again without the offer, then the rest.

    A request whose head does not arrive in time is answered with 408; a body that nobody reads any
    more ends the connection then. One that is read is `service.http.middleware`'s to time.

    Args:
        upload_timeout_s: from the first byte, or from the connection's beginning.
    """

    def __init__(self, *args: Any, upload_timeout_s: float = 60, **more: Any) -> None:
        super().__init__(*args, **more)
        self._upload_timeout_s = upload_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        """Runs until a request is complete."""
        self._headed = True
        """No head is incomplete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserError:
                self._refuse(400, "the request is not HTTP/1.1")
            except httptools.HttpParserUpgrade as stop:
                if self.parser.get_method() != b"CONNECT":
                    data = self._head() + data[stop.args[0] :]
                    self.parser = httptools.HttpRequestParser(self)
                    continue
                self._refuse(400, "there is no CONNECT here")
            return

    def shutdown(self) -> None:
        """Close the connection; a first request may be on its way and gets a moment to arrive."""
        if self._timer:
            self.loop.call_later(_MOMENT_S, super().shutdown)
        else:
            super().shutdown()

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._headed = False
        if self._timer is None:
            self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the head is parsed again."""
        if not self.parser.should_upgrade():
            self._headed = True
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take the body for complete, unless it was not read."""
        if not self.parser.should_upgrade():
            self._stop_timer()
            super().on_message_complete()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._upload_timeout_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """End a connection on which nothing is being answered."""
        if self.cycle and not self.cycle.response_complete:
            self._start_timer()
        elif not self._headed:
            self._refuse(408, "the head of the request did not arrive in time")
        else:
            self.transport.close()

    def _head(self) -> bytes:
        """The head that was parsed, without the offer."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, status: int, reason: str) -> None:
        log.info("refused: %s", reason)
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(reason)
        end = b"connection: close\r\n\r\n" + reason.encode()
        self.transport.write(STATUS_LINE[status] + head + end)
        self.transport.close()
