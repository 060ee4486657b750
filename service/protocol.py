"""HTTP/1.1, for clients that offer something newer, too."""

from __future__ import annotations

import logging

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger(__name__)


class Http1(HttpToolsProtocol):
    """Serves a request that offers an upgrade as if it did not (RFC 9110, section 7.8).

    Java's client, and curl with `--http2`, offer HTTP/2 with every request. The parser stops after
    the head of such a request, and uvicorn would take its body for the next one. Here the head is
    parsed again without the offer, then the rest.
    """

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserError:
                self._refuse("the request is not HTTP/1.1")
            except httptools.HttpParserUpgrade as stop:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse("there is no CONNECT here")
                    return
                data = self._head() + data[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                continue
            return

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the head is parsed again."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take the body for complete, unless it was not read."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _head(self) -> bytes:
        """The head that was parsed, without the offer."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, reason: str) -> None:
        log.info("refused: %s", reason)
        self.send_400_response(reason)
