"""HTTP as an attacker writes it: bytes on a socket, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ATTACKER = "127.0.0.66"
"""Where attacks come from, on the loopback device: not the address of the well-behaved client."""
CLOSED, SILENT, REFUSED = "closed", "silent", "refused"
_PIECE = 1 << 18
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

Outcome = int | str
"""A status code, or a word where there is none."""


@dataclass(frozen=True)
class Target:
    """What is attacked: a port on the loopback address, and the key that a client has there."""

    port: int
    key: str = ""


class Answer(NamedTuple):
    """The first answer to what was sent."""

    outcome: Outcome
    head: bytes = b""
    body: bytes = b""


def request(
    path: str,
    body: bytes = b"",
    *,
    method: str = "",
    headers: Iterable[str] = (),
    kind: str = "image/png",
    key: str = "",
) -> bytes:
    """A whole request; POST where it has a body."""
    lines = [f"{method or ('POST' if body else 'GET')} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"X-API-Key: {key}"] if key else []
    lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


def several(path: str, files: Iterable[bytes]) -> bytes:
    """A request with several pictures as base64 in JSON."""
    images = [base64.b64encode(one).decode() for one in files]
    body = json.dumps({"images": images}, separators=(",", ":")).encode()
    return request(path, body, kind="application/json")


class Connection:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(
        cls, target: Target, *, source: str = ATTACKER, narrow: bool = False
    ) -> Connection:
        """Connect from an address of the loopback device; `narrow` ones take little at once."""
        end = socket.socket()
        if narrow:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        end.setblocking(False)
        try:
            end.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", target.port))
            opened = await asyncio.open_connection(sock=end, limit=64 if narrow else 1 << 20)
        except BaseException:
            end.close()
            raise
        return cls(*opened)

    @property
    def port(self) -> int:
        """Its own, not the target's."""
        number: int = self._writer.get_extra_info("sockname")[1]
        return number

    async def write(self, data: bytes) -> None:
        """Send in pieces, as fast as they are taken.

        Raises:
            ConnectionError: the other side has closed.
        """
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            self._writer.write(view[start : start + _PIECE])
            await self._writer.drain()

    async def exchange(self, data: bytes, *, patience_s: float = 40) -> Answer:
        """Send, and read the first answer meanwhile: a refusal need not wait for the end."""
        reading = asyncio.ensure_future(self.read())
        writing = asyncio.ensure_future(self.write(data))
        try:
            async with asyncio.timeout(patience_s):
                await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
                return await reading
        except TimeoutError:
            return Answer(SILENT)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def read(self) -> Answer:
        """The next answer, or that there is none."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await self._reader.readexactly(int(length[1])) if length else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            return Answer(CLOSED)
        found = _STATUS.match(head)
        return Answer(int(found[1]) if found else "no HTTP", head, body)

    async def read_some(self, size: int) -> bytes:
        """So many bytes at most; none where the other side has closed."""
        with suppress(ConnectionError):
            return await self._reader.read(size)
        return b""

    def close(self, *, reset: bool = False) -> None:
        """Close, or break off without a word."""
        with suppress(OSError):
            if reset:
                self._writer.transport.abort()
            self._writer.close()


def held(target: Target) -> set[int]:
    """Ports of the connections that a program still holds open on the target's side."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_others = fields = line.split()
        if int(local.partition(":")[2], 16) == target.port and fields[9] != "0":
            found.add(int(remote.partition(":")[2], 16))
    return found


async def exchange(
    target: Target, data: bytes, *, source: str = ATTACKER, patience_s: float = 40
) -> Answer:
    """One exchange on a connection of its own."""
    try:
        connection = await Connection.open(target, source=source)
    except OSError:
        return Answer(REFUSED)
    try:
        return await connection.exchange(data, patience_s=patience_s)
    finally:
        connection.close()
