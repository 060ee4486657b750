"""HTTP/2 frames of a gRPC call, as bytes."""

from __future__ import annotations

import struct

DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(stream: int, *, path: str) -> bytes:
    """The headers of a gRPC call, neither indexed nor compressed (RFC 7541, section 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return frame(HEADERS, stream, block, END_HEADERS)


def _text(value: str) -> bytes:
    """A string of fewer than 127 bytes."""
    return bytes([len(value)]) + value.encode()


def message(content: bytes) -> bytes:
    """A message as gRPC puts it into frames."""
    return struct.pack(">?I", False, len(content)) + content
