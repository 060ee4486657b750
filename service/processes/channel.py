"""Messages between the supervisor and a child: JSON lines over a pair of Unix sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Self

Message = dict[str, Any]
_LIMIT = 1 << 20
"""Bytes of the longest message."""


class Channel:
    """One end of the pair. What is sent waits for as long as the other end does not read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, connection: socket.socket) -> Self:
        """Take one end of a pair."""
        return cls(*await asyncio.open_unix_connection(sock=connection, limit=_LIMIT))

    def send(self, **message: Any) -> None:
        """Send a message; it is dropped if the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[Message]:
        """What the other process sends, until it is gone."""
        with suppress(ConnectionError):
            async for line in self._reader:
                if line.endswith(b"\n"):  # else the process was killed while it wrote
                    yield json.loads(line)

    async def close(self) -> None:
        """Send what waits, and no more."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
