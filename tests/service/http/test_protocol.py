from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvicorn

from service.admission import Admission
from service.http.protocol import (
    IDLE_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    Connections,
    Http1,
)

WITH_LENGTH = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n%b\r\nhello"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = scope["path"].encode() + b" got " + body + b"."
    length = (b"content-length", str(len(answer)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": answer})


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connection = tuple[uvicorn.Server, asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(
    app: Any = echo,
    *,
    admission: Admission | None = None,
    connections: Connections | None = None,
    upload_timeout_s: float = 60,
    keep_alive_s: float = 60,
) -> AsyncIterator[Connection]:
    """A server, and a client's connection to it."""
    config = uvicorn.Config(
        app,
        http=partial(  # type: ignore[arg-type]
            Http1,
            admission=admission or Admission(1_000_000, 1),
            connections=connections or Connections(10),
            upload_timeout_s=upload_timeout_s,
        ),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield server, reader, writer
        finally:
            writer.close()
            server.should_exit = True
            await serving


async def exchange(pieces: list[bytes], app: Any = echo, **limits: Any) -> bytes:
    """All that a server answers to pieces that come one after the other."""
    async with connected(app, **limits) as (_server, reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        return await asyncio.wait_for(read_all(reader), 10)


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """What comes before the connection ends, properly or because the server reads no more."""
    answer = b""
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            answer += part
    return answer


def test_handling_ends_when_the_client_leaves() -> None:
    """The work of a client that left is cancelled."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def work(_scope: Any, _receive: Any, _send: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def leave() -> None:
        async with connected(work) as (_server, _reader, writer):
            writer.write(WITH_LENGTH % b"")
            await asyncio.wait_for(began.wait(), 10)
            writer.close()
            await asyncio.wait_for(cancelled.wait(), 10)

    asyncio.run(leave())


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHo", b"G", LAST.replace(b"close", b"") + b"P"]
)
def test_a_head_that_stalls_is_answered_with_408(sent: bytes) -> None:
    """The connection is closed; what came before is answered."""
    answer = asyncio.run(exchange([sent], upload_timeout_s=0.2))
    assert b"HTTP/1.1 408 Request Timeout" in answer
    assert b"connection: close" in answer


def test_a_request_to_upgrade_is_served_as_it_is() -> None:
    """Java's client asks for HTTP/2 in every request; what follows the body is the next one."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n"
    answer = asyncio.run(exchange([WITH_LENGTH % upgrade + LAST]))
    assert [200, 200] == statuses(answer)
    assert b"/echo got hello." in answer


def test_a_request_on_its_way_is_answered_while_the_server_ends() -> None:
    """On a connection that was just made; its answer is the last."""

    async def run() -> bytes:
        async with connected() as (server, reader, writer):
            await until(lambda: bool(server.server_state.connections))
            (connection,) = server.server_state.connections
            connection.shutdown()
            writer.write(LAST)
            return await asyncio.wait_for(reader.read(), 10)

    assert b"/last got ." in asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what is expected, ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  nobody would set an event
            await asyncio.sleep(0.01)


LONG = b"A" * MAX_HEAD_BYTES
HEADERS = b"".join(b"A%d: b\r\n" % number for number in range(12_000))


@pytest.mark.parametrize("cut", [0, 5000], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % (LONG[:-100]), 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % LONG, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b: a\r\n\r\n" % LONG, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % HEADERS, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"A: b\r\n" * (MAX_HEADERS - 1)), 200),
        (b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"A: b\r\n" * MAX_HEADERS), 431),
        (b"GET /?%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * (MAX_TARGET_BYTES - 2)), 200),
        (b"GET /?%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * (MAX_TARGET_BYTES - 1)), 414),
        (b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % LONG, 414),
    ],
    ids=["fits", "value", "name", "many", "100 fit", "101", "query fits", "query", "path"],
)
def test_a_head_has_a_limit(head: bytes, status: int, cut: int) -> None:
    """64 KB, of which 8 for the path and query, and 100 headers; others never reach the app."""
    pieces = [head[:cut], head[cut:]]
    answer = asyncio.run(exchange([*pieces, LAST] if status == 200 else pieces))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (status == 200) == (b" got " in answer)


@pytest.mark.parametrize("pieces", [1, 2], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("garbage", "status"), [(b"\x00\x01 garbage", 400), (b"GET /%b" % LONG, 414)]
)
def test_a_request_before_garbage_is_answered(garbage: bytes, status: int, pieces: int) -> None:
    """Then the garbage is refused, and the connection ends."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)
        await echo(scope, receive, send)

    good = WITH_LENGTH % b"" + LAST.replace(b"close", b"keep-alive")
    sent = [good + garbage] if pieces == 1 else [good, garbage]
    answer = asyncio.run(exchange(sent, slow))
    assert [200, 200, status] == statuses(answer)
    assert b"hello." in answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


async def open_from(address: str, target: tuple[str, int]) -> Stream:
    """A connection from one of the addresses of the loopback device."""
    return await asyncio.open_connection(*target, local_addr=(address, 0))


async def get(stream: Stream, request: bytes = LAST) -> list[int]:
    """The statuses of all answers to one request."""
    reader, writer = stream
    writer.write(request)
    answer = await asyncio.wait_for(read_all(reader), 10)
    writer.close()
    return statuses(answer)


def test_idle_connections_of_some_addresses_keep_nobody_out() -> None:
    """The oldest one of the address that has most ends for a new one, and memory is bounded."""
    connections, admission = Connections(40), Admission(100 * IDLE_BYTES, 1)

    async def ask() -> list[list[int]]:
        async with connected(connections=connections, admission=admission) as (server, _, writer):
            target = writer.get_extra_info("peername")
            await until(lambda: 1 == connections.count)
            idle = [await open_from(f"127.0.1.{n % 13 + 1}", target) for n in range(150)]
            others = [await get(await open_from(f"127.0.2.{n + 1}", target)) for n in range(5)]
            await until(lambda: connections.count <= connections.limit)
            assert len(server.server_state.connections) == connections.count
            assert admission.held_bytes == connections.count * IDLE_BYTES
            others.append(await get((_, writer)))  # it has waited longest, but alone
            for _reader, idler in idle:
                idler.close()
            await until(lambda: 0 == connections.count)
            return others

    assert [[200]] * 6 == asyncio.run(ask())
    assert 0 == admission.held_bytes
