"""HTTP/2 as an attacker of the gRPC port writes it: frames on a socket, and which streams end."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from tests.attack.wire import ATTACKER, Connection, Target

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_WINDOW = 65_535
"""That a stream, and a connection, begin with (RFC 9113, section 6.9.2)."""
_INITIAL_WINDOW = 4
"""The number of this setting (RFC 9113, section 6.5.2)."""
_PIECE = 16_384
METHOD = "/inference.GRPCInferenceService/ModelInfer"
Headers = Iterable[tuple[str, str]]


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(stream: int, *, path: str = METHOD, more: Headers = ()) -> bytes:
    """The headers of a gRPC call."""
    fields = [
        *((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")),
        *(("te", "trailers"), ("content-type", "application/grpc"), *more),
    ]
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
    return frame(HEADERS, stream, block, END_HEADERS)


def message(content: bytes, *, announced: int | None = None) -> bytes:
    """A message as gRPC puts it into frames, perhaps with a false length."""
    size = len(content) if announced is None else announced
    return struct.pack(">?I", False, size) + content  # not compressed


def _text(value: str) -> bytes:
    """A string of a header, neither indexed nor compressed (RFC 7541, section 5.2)."""
    content, size = value.encode(), len(value.encode())
    if size < 127:
        return bytes([size]) + content
    length, rest = bytearray([127]), size - 127
    while rest >= 128:
        length.append(rest % 128 | 128)
        rest //= 128
    return bytes(length) + bytes([rest]) + content


class Http2:
    """One connection; sends what the other side's windows allow."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._windows: Counter[int] = Counter({0: _WINDOW})
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._initial = _WINDOW
        self.ended: set[int] = set()
        """Streams that the other side ended."""
        self.closed = False

    @classmethod
    async def open(cls, target: Target, *, source: str = ATTACKER) -> Self:
        """Connect, and begin."""
        self = cls(await Connection.open(target, source=source))
        self.listen()
        await self.write(PREFACE + frame(SETTINGS, 0))
        return self

    def listen(self) -> None:
        """Read what comes, and notice the end."""
        self._reading = asyncio.ensure_future(self._read())

    async def write(self, data: bytes) -> None:
        """Send frames."""
        with suppress(ConnectionError):
            await self._connection.write(data)

    async def begin(self, stream: int, *, path: str = METHOD, more: Headers = ()) -> None:
        """Send the headers of a call."""
        self._windows[stream] += self._initial
        await self.write(head(stream, path=path, more=more))

    async def send(self, stream: int, content: bytes) -> None:
        """Send a part of a message, as fast as it is taken."""
        rest = memoryview(content)
        while rest and not self.closed and stream not in self.ended:
            size = min(len(rest), _PIECE, self._windows[0], self._windows[stream])
            if size <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._windows[0] -= size
            self._windows[stream] -= size
            await self.write(frame(DATA, stream, bytes(rest[:size])))
            rest = rest[size:]

    async def wait_for_ends(self, streams: Iterable[int]) -> None:
        """Wait until the other side has ended all of these streams, or the connection."""
        while not self.closed and not self.ended.issuperset(streams):
            self._changed.clear()
            await self._changed.wait()

    async def _read(self) -> None:
        while not self.closed:
            start = await self._exactly(9)
            size = int.from_bytes(start[:3])
            kind, flags, stream = struct.unpack(">BBI", start[3:] or bytes(6))
            payload = await self._exactly(size)
            self.closed = len(start) < 9 or len(payload) < size
            if kind == WINDOW_UPDATE and len(payload) == 4:
                self._windows[stream] += int.from_bytes(payload)
            elif kind == SETTINGS and not flags & ACK:
                self._settle(payload)
                await self.write(frame(SETTINGS, 0, flags=ACK))
            elif kind == PING and not flags & ACK:
                await self.write(frame(PING, 0, payload, ACK))
            elif kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
                self.ended.add(stream)
            self._changed.set()

    def _settle(self, payload: bytes) -> None:
        """Take the initial window of streams, of which none has begun yet."""
        for number, value in struct.iter_unpack(">HI", payload):
            if number == _INITIAL_WINDOW:
                self._initial = value

    async def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = await self._connection.read_some(size - len(content))
            if not part:
                break
            content += part
        return content

    def close(self) -> None:
        """Break off."""
        if self._reading:
            self._reading.cancel()
        self._connection.close(reset=True)
