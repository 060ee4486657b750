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
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    Http1,
)
from service.shared import IDLE_BYTES, Connections

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAQ\r\n"
WITH_LENGTH = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n%b\r\nhello"
CHUNKED = (
    b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%b\r\n"
    b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
)
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
            Http1, admission=admission, connections=connections, upload_timeout_s=upload_timeout_s
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


@pytest.mark.parametrize("offer", [b"", OFFER], ids=["plain", "offers HTTP/2"])
@pytest.mark.parametrize("request_", [WITH_LENGTH, CHUNKED], ids=["with length", "chunked"])
@pytest.mark.parametrize("cut", [None, 10, -5, -3], ids=["whole", "in the head", "before", "in it"])
def test_who_offers_an_upgrade_is_answered_as_others(
    offer: bytes, request_: bytes, cut: int | None
) -> None:
    """The body belongs to the request, however the bytes arrive."""
    content = request_ % offer
    pieces = [content] if cut is None else [content[:cut], content[cut:]]
    answer = asyncio.run(exchange([*pieces, LAST]))
    assert b"/echo got hello." in answer
    assert answer.endswith(b"/last got .")
    assert 2 == answer.count(b"HTTP/1.1 200")


@pytest.mark.parametrize("line", [b"CONNECT x:443 HTTP/1.1", b"no HTTP"])
def test_what_is_no_request_is_refused(line: bytes) -> None:
    """With a 400, and the connection is closed."""
    answer = asyncio.run(exchange([line + b"\r\nHost: x\r\n\r\n"]))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"200" not in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHo", b"G", LAST.replace(b"close", b"") + b"P"]
)
def test_a_head_that_stalls_is_answered_with_408(sent: bytes) -> None:
    """The connection is closed; what came before is answered."""
    answer = asyncio.run(exchange([sent], upload_timeout_s=0.2))
    assert b"HTTP/1.1 408 Request Timeout" in answer
    assert b"connection: close" in answer


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


@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: ",
        b"\r\n",
        WITH_LENGTH % b"" + b"POST / HTTP/1.1\r\nA: ",
        CHUNKED[:-2] % b"" + b"A: ",
        CHUNKED[:-5] % b"" + b"5;",
    ],
    ids=["path", "header", "no line", "second head", "trailer", "chunk extension"],
)
def test_a_head_without_an_end_is_cut_off(start: bytes) -> None:
    """Sixty megabytes of it are not waited for: the connection ends after less than a tenth."""

    async def send() -> int:
        sent = 0
        filling = b"\r\n" * 25_000 if start == b"\r\n" else b"a" * 50_000
        async with connected() as (_server, _reader, writer):
            writer.write(start)
            with suppress(ConnectionError):
                while sent < 60_000_000:
                    writer.write(filling)
                    await asyncio.wait_for(writer.drain(), 10)
                    sent += len(filling)
        return sent

    assert asyncio.run(send()) < 6_000_000


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


def test_a_body_that_is_garbage_is_refused_after_what_came_before() -> None:
    """Its own request gets a 400, the one before it its answer."""
    broken = CHUNKED.replace(b"2\r\nlo", b"z\r\nlo") % b""
    assert [400] == statuses(asyncio.run(exchange([broken])))
    assert [200, 400] == statuses(asyncio.run(exchange([WITH_LENGTH % b"" + broken])))


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [(b"1.1", 0, 400), (b"1.1", 1, 200), (b"1.1", 2, 400), (b"1.0", 0, 200), (b"1.0", 2, 400)],
)
def test_there_is_one_host(version: bytes, hosts: int, status: int) -> None:
    """HTTP/1.1 demands it of a request, and of a server to refuse others (RFC 9112, 3.2)."""
    head = b"GET / HTTP/%b\r\n%bConnection: close\r\n\r\n" % (version, b"Host: x\r\n" * hosts)
    assert [status] == statuses(asyncio.run(exchange([head])))


@pytest.mark.parametrize("offer", [b"", OFFER], ids=["plain", "offers HTTP/2"])
def test_thousands_of_requests_in_a_row_wait_outside(offer: bytes) -> None:
    """They are parsed when it is their turn, a few at a time, and all are answered."""
    most = 0

    async def look(scope: Any, receive: Any, send: Any) -> None:
        nonlocal most
        (connection,) = server.server_state.connections
        most = max(most, len(connection.pipeline))
        await echo(scope, receive, send)

    async def send() -> bytes:
        nonlocal server
        async with connected(look) as (server, reader, writer):
            writer.write(WITH_LENGTH % offer * 5000 + LAST)
            return await asyncio.wait_for(read_all(reader), 60)

    server: Any = None
    answer = asyncio.run(send())
    assert (5001, 5000) == (answer.count(b"HTTP/1.1 200"), answer.count(b"got hello."))
    assert 0 < most < 500


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
@pytest.mark.parametrize("parts", [1, 400], ids=["in one", "in parts"])
def test_an_answer_that_is_not_taken_ends_its_connection(connection: bytes, parts: int) -> None:
    """After the time that a request has, however much is left, and its memory is free."""

    async def answer_at_length(_scope: Any, _receive: Any, send: Any) -> None:
        part = bytes(20_000_000 // parts)
        length = (b"content-length", str(len(part) * parts).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        for _ in range(parts - 1):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": part})

    async def ask() -> None:
        async with connected(answer_at_length, upload_timeout_s=0.3) as (server, _, writer):
            writer.write(LAST.replace(b"close", connection))
            await until(lambda: bool(server.server_state.connections))
            await until(lambda: not server.server_state.connections)
            await until(lambda: not server.server_state.tasks)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"10.0.0.1", True),
        (b"10.0.0.1, 2001:db8::1", True),
        (b"10.0.0.1, evil", False),
        (b"x" * 60_000, False),
        (b"10.0.0.1," * 600 + b"10.0.0.1", False),
    ],
)
def test_forwarded_addresses_are_addresses(sent: bytes, *, kept: bool) -> None:
    """A header that holds anything else, or hundreds of them, never reaches the app."""
    seen: list[Any] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(scope["headers"])
        await echo(scope, receive, send)

    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %b\r\nConnection: close\r\n\r\n"
    assert [200] == statuses(asyncio.run(exchange([head % sent], look)))
    assert kept == (b"x-forwarded-for" in dict(seen))


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


def test_a_connection_whose_request_is_answered_is_not_ended_for_others() -> None:
    """Also where its address has more connections than any other."""
    may_answer = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/last":
            await may_answer.wait()
        await echo(scope, receive, send)

    async def ask() -> list[list[int]]:
        connections = Connections(4)
        async with connected(wait, connections=connections) as (_, reader, writer):
            target = writer.get_extra_info("peername")
            asked = [(reader, writer), *[await open_from("127.0.0.1", target) for _ in range(3)]]
            answers = [asyncio.create_task(get(one, WITH_LENGTH % b"" + LAST)) for one in asked]
            await asyncio.sleep(0.1)
            other = await get(await open_from("127.0.2.1", target))
            may_answer.set()
            return [other, *await asyncio.gather(*answers)]

    assert [[200], *[[200, 200]] * 4] == asyncio.run(ask())
