from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

import pytest
import uvicorn

from service.http.protocol import Http1

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


async def exchange(pieces: list[bytes], *, upload_timeout_s: float = 60) -> bytes:
    """All that a server answers to pieces that come one after the other."""
    protocol = partial(Http1, upload_timeout_s=upload_timeout_s)
    config = uvicorn.Config(echo, http=protocol, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        server.should_exit = True
        await serving
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


def test_many_offers_in_a_row_are_answered() -> None:
    """As many as there are, on one connection."""
    answer = asyncio.run(exchange([WITH_LENGTH % OFFER * 50 + LAST]))
    assert 50 == answer.count(b"/echo got hello.")


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


def test_a_connection_without_a_request_is_closed() -> None:
    """Nothing was asked, and nothing is answered."""
    assert b"" == asyncio.run(exchange([b""], upload_timeout_s=0.2))


def test_a_body_that_is_still_awaited_is_not_cut_off() -> None:
    """Its reader has a time limit of its own."""
    pieces = [WITH_LENGTH[:-5] % b"", *[b"%c" % one for one in b"hello"], LAST]
    assert b"/echo got hello." in asyncio.run(exchange(pieces, upload_timeout_s=0.05))


def test_a_request_on_its_way_is_answered_while_the_server_ends() -> None:
    """On a connection that was just made; its answer is the last."""

    async def run() -> bytes:
        config = uvicorn.Config(echo, http=Http1, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await asyncio.sleep(0.1)
            (connection,) = server.server_state.connections
            connection.shutdown()
            writer.write(LAST)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            server.should_exit = True
            await serving
        return answer

    assert b"/last got ." in asyncio.run(run())
