"""HTTP/1.1 by uvicorn. Requests to upgrade are ignored, and stalled connections end."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from itertools import islice
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.admission import Admission, Claim
from service.errors import Busy

log = logging.getLogger(__name__)
MAX_HEAD_BYTES = 65_536
"""A request line with its headers may have this many bytes (else 431); so may a body's framing."""
MAX_HEADERS = 100
"""A request may have this many headers (else 431); each takes a hundred bytes more than it has."""
SHORT_BYTES = 8_192
"""A connection counts as `IDLE_BYTES`, which covers so much of what it holds; the rest is added."""
MAX_TARGET_BYTES = 8_192
"""A path with its query may have this many bytes (else 414), as in nginx."""
_NO_HTTP = "the request is not HTTP/1.1"
_LONG_HEAD = "the head of the request is too long"
_PIECE_BYTES = 16_384
"""The parser gets this many bytes at once, which bounds the pipelined requests that wait."""
_MOMENT_S = 0.2
"""A client that has just connected may take this long to send its request while the server ends."""
IDLE_BYTES = 16_384
"""A connection without a request takes about 7 kB, and a head of 8 kB may be arriving on it."""
_SPARE_DESCRIPTORS = 256
"""File descriptors that connections leave for everything else."""
_LOOKED_AT = 64
"""Of so many connections, one is dropped: those that have waited longest for a request."""


class Http1(HttpToolsProtocol):
    """Extends uvicorn's HTTP/1.1 protocol by limits in bytes and seconds.

    A request to upgrade is served as if it did not ask for that (RFC 9110, section 7.8). Java's
    client, and curl with `--http2`, ask for HTTP/2 in every request. The parser stops after the
    head of such a request, and uvicorn would take its body for the next one. Here the head is
    parsed again without the upgrade, then the rest.

    A request whose head does not arrive in time is answered with 408; a body that nobody reads any
    more ends the connection then. One that is read is timed by `service.http.middleware.Body`. An
    answer that its client does not take in the same time ends the connection.

    Bytes that are no valid request are refused once the earlier requests are answered.

    What a connection holds is counted by its address. A new one is always accepted, and may end
    another that waits for a request: see `Connections`.

    Methods stand in a request's order. The parser, which `_feed` calls, calls `on_...`; uvicorn's
    `on_headers_complete` calls `_start_asgi_task`.

    Args:
        admission: counts bytes.
        connections: all of this process.
        upload_timeout_s: for a head to arrive, from its first byte or the connection's start.
    """

    def __init__(
        self,
        *args: Any,
        admission: Admission,
        connections: Connections,
        upload_timeout_s: float,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._admission, self._connections = admission, connections
        self._claim: Claim
        self._upload_timeout_s = upload_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        """Ends the wait for a request, or for a client to take a long answer."""
        self._head_is_complete = True
        """Whether no head is being read."""
        self._message_is_complete = False
        """Whether no more of a request is awaited."""
        self._pending_bytes = 0
        """Bytes parsed since the last complete head, body part or message."""
        self._head_bytes = 0
        """Of the newest request, until it is answered."""
        self._unparsed = b""
        """What came behind requests that wait for their turn."""
        self._running: RequestResponseCycle | None = None
        """What is being answered: `self.cycle` is the newest request."""
        self._task: asyncio.Task[None] | None = None
        """Handles what is being answered."""
        self._refusal: bytes | None = None
        """The last answer: what arrives after it is dropped."""

    @property
    def address(self) -> str:
        """Where the connection comes from: the client, or a proxy."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._reset_timer()
        self._claim = self._admission.claim(self.address, IDLE_BYTES)
        self._connections.open(self)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. While requests wait for their turn, read no more."""
        if self._refusal:
            return
        self._unparsed += data
        self._parse()
        if self._unparsed:
            self.flow.pause_reading()
        self._count()

    def _parse(self) -> None:
        rest = memoryview(self._unparsed)
        while rest and not self.pipeline and not self._refusal:
            piece, rest = rest[:_PIECE_BYTES], rest[_PIECE_BYTES:]
            self._pending_bytes += len(piece)
            self._feed(piece)
            if self._pending_bytes > MAX_HEAD_BYTES:
                self._refuse(431, _LONG_HEAD)
        self._unparsed = b"" if self._refusal else bytes(rest)
        if not (self._message_is_complete or self._refusal or self._timer):
            self._reset_timer()

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, MemoryError):
                self._refuse(503, "no memory is left")
            else:
                self._refuse(400, _NO_HTTP)
        except httptools.HttpParserUpgrade as stop:
            if self.parser.get_method() == b"CONNECT":
                self._refuse(400, "there is no CONNECT here")
                return
            data = self._head() + data[stop.args[0] :]
            self.parser = httptools.HttpRequestParser(self)
            self._feed(data)

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._unset_keepalive_if_required()
        self._head_is_complete = False
        self._pending_bytes = self._head_bytes = 0
        self._message_is_complete = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Store a part of the path and query, unless they are too long."""
        super().on_url(url)
        if len(self.url) > MAX_TARGET_BYTES:
            self._refuse(414, "the path and query are too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Those after a body are dropped (RFC 9110, section 6.5.1)."""
        if self._head_is_complete or self._refusal:
            return
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) == MAX_HEADERS:
            self._refuse(431, _LONG_HEAD)
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the head is refused or parsed again."""
        self._pending_bytes = 0
        if self._refusal or self.parser.should_upgrade():
            return
        self._head_is_complete = True
        self._unset_keepalive_if_required()
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1"):
            self._refuse(400, _NO_HTTP)
        elif hosts > 1 or (not hosts and version == "1.1"):
            self._refuse(400, "one Host header is needed")
        else:
            super().on_headers_complete()

    def _head(self) -> bytes:
        """The head that was parsed, without the upgrade."""
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._pending_bytes = 0
        if not self._refusal:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the body as complete, unless it was not read."""
        self._pending_bytes = 0
        if not self._refusal and not self.parser.should_upgrade():
            self._message_is_complete = True
            self._reset_timer()
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the app, until the client leaves. Sending waits while much of it is not taken."""

        async def run(scope: Any, receive: Any, send: Any) -> None:
            self._task = asyncio.current_task()

            async def send_and_wait(message: Any) -> None:
                await send(message)
                if self.flow.write_paused:
                    await self.flow.drain()
                elif cycle.response_complete:
                    await asyncio.sleep(0)  # sends it; only then it is logged and counted

            try:
                if not cycle.disconnected:
                    await app(scope, receive, send_and_wait)
            except asyncio.CancelledError:
                if not cycle.disconnected:
                    raise

        self._running = cycle
        super()._start_asgi_task(cycle, run)

    def on_response_complete(self) -> None:
        """Begin the next request, or end the connection after the last."""
        if self._refusal and self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()  # the newest, whose body cannot be read
        last = not self.pipeline
        if last:
            self._head_bytes = 0
        super().on_response_complete()
        self.loop.call_soon(self._count)  # once the end of the answer is sent
        if self._refusal and last:
            self._close(self._refusal)
        elif self.transport.is_closing():
            self._reset_timer()
        elif self._unparsed:
            self._parse()

    def pause_writing(self) -> None:
        """Limit the time that the client may take to read its answer."""
        super().pause_writing()
        self._reset_timer()

    def resume_writing(self) -> None:
        """Go on, because the client has read its answer.

        The end of a last answer keeps its limit.
        """
        super().resume_writing()
        if not self.transport.is_closing():
            self._reset_timer()

    def _count(self) -> None:
        """Count what this connection holds, and whether another one may take its place."""
        if self.transport.is_closing():
            return
        cycle = self._running
        works = bool(cycle and not (cycle.response_complete or cycle.more_body))
        self._connections.update(self, rests=not works)
        unsent = self.transport.get_write_buffer_size()
        held = len(self._unparsed) + self._pending_bytes + self._head_bytes + unsent
        try:
            self._claim.resize(IDLE_BYTES + max(0, held - SHORT_BYTES))
        except Busy:
            if works or unsent:
                self.drop()
            else:
                self._refuse(503, "too many bytes of requests in memory")

    def _reset_timer(self) -> None:
        """Limit how long the client may take to read an answer or to send more, if that is due."""
        self._stop_timer()
        if self.transport.is_closing() or self.flow.write_paused:
            self._timer = self.loop.call_later(self._upload_timeout_s, self.transport.abort)
        elif not self._message_is_complete:
            self._timer = self.loop.call_later(self._upload_timeout_s, self._expire)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """End a connection on which nothing is being answered."""
        if self.cycle and not self.cycle.response_complete:
            self._reset_timer()
        elif not self._head_is_complete:
            self._refuse(408, "the head of the request did not arrive in time")
        else:
            self._close(b"")

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection, even if its last answer was not taken."""
        self.transport.abort()

    def _refuse(self, status: int, reason: str) -> None:
        """Read no more, and end the connection when the requests before this were answered.

        Only the first refusal counts.
        """
        if self._refusal:
            return
        log.info("refused: %s", reason)
        self._message_is_complete = True
        self._reset_timer()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(reason)
        end = b"connection: close\r\n\r\n" + reason.encode()
        head += b"retry-after: 1\r\n" if status == 503 else b""
        self._refusal = STATUS_LINE[status] + head + end
        newest = self.cycle
        if newest and not newest.response_complete and (self.pipeline or not newest.more_body):
            return  # `on_response_complete` sends it
        # An answer that has begun, or one to a body that is still arriving, is the last.
        answered = newest and newest.more_body and newest.response_started
        self._close(b"" if answered else self._refusal)

    def _close(self, answer: bytes) -> None:
        """End the connection, perhaps with a last answer."""
        if answer and not self.transport.is_closing():
            self._give_up()
            self.transport.write(answer)
        self.transport.close()
        self._reset_timer()

    def drop(self) -> None:
        """End the connection without an answer, in favour of others."""
        self._give_up()
        self.transport.abort()

    def _give_up(self) -> None:
        """Cancel the app's task, because nobody waits for its answer any more."""
        if self._running and not self._running.response_complete:
            self._running.disconnected = True
            if self._task:
                self._task.cancel()

    def shutdown(self) -> None:
        """Close the connection. A first request that is on its way gets a moment to arrive."""
        if not self._message_is_complete:
            self.loop.call_later(_MOMENT_S, super().shutdown)
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self._unparsed = b""
        self._claim.release()
        self._connections.close(self)
        self._give_up()
        super().connection_lost(exc)


def max_connections(budget_bytes: int) -> int:
    """Return how many connections a process may hold.

    Its file descriptors decide, and a quarter of its bytes.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_bytes = budget_bytes // 4 // IDLE_BYTES
    return max(1, min(by_bytes, max(descriptors // 2, descriptors - _SPARE_DESCRIPTORS)))


class Connections:
    """The open connections of all addresses.

    A new connection is always accepted. Beyond the limit another one is dropped for it: of those
    that have waited longest for a request, one of the address that has the most connections. A
    connection is kept while its request is being answered.

    Args:
        limit: of connections.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._of_address = Counter[str]()
        self._resting: dict[Http1, None] = {}
        """Those that may be dropped, oldest first."""

    @property
    def count(self) -> int:
        """How many are open."""
        return self._of_address.total()

    def open(self, connection: Http1) -> None:
        """Count a new connection, and drop another one if there are too many."""
        self._of_address[connection.address] += 1
        if self.count > self.limit and self._resting:
            oldest = islice(self._resting, _LOOKED_AT)
            other = max(oldest, key=lambda resting: self._of_address[resting.address])
            del self._resting[other]
            other.drop()
        self._resting[connection] = None

    def update(self, connection: Http1, *, rests: bool) -> None:
        """Record whether a connection waits for a request, or for more of one."""
        self._resting.pop(connection, None)
        if rests:
            self._resting[connection] = None

    def close(self, connection: Http1) -> None:
        """Forget a connection that has ended."""
        self._resting.pop(connection, None)
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]
