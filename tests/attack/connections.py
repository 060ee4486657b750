"""Attacks that wait: connections that do nothing, or do it slowly, longer than the timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.attack.cases import Site, addresses, attack
from tests.attack.heads import GOOD, SEVEN
from tests.attack.wire import CLOSED, Connection, held, request

STILL_OPEN = "still open"


async def _linger(
    site: Site, count: int, step: Callable[[Connection, int], Awaitable[object]]
) -> None:
    """Open connections, take a step on each every second, and see which the service ends."""
    opened = [await Connection.open(site.target, narrow=True) for _ in range(count)]
    for second in range(int(site.seconds)):
        lingering = held(site.target)
        for connection in opened:
            if connection.port in lingering:
                with suppress(ConnectionError, TimeoutError):
                    await step(connection, second)
        await asyncio.sleep(1)
    lingering = held(site.target)
    for connection in opened:
        site.outcomes[STILL_OPEN if connection.port in lingering else CLOSED] += 1
        connection.close()


async def _send_slowly(connection: Connection, data: bytes, second: int) -> None:
    await connection.write(data[second : second + 1])


@attack("500 connections without a request", allowed=(CLOSED,), patient=True)
async def empty_connections(site: Site) -> None:
    """Connections on which nothing comes."""
    await _linger(site, 500, lambda connection, _second: connection.write(b""))


@attack("50 bare CRLFs after an answer", allowed=(CLOSED,), patient=True)
async def bare_lines(site: Site) -> None:
    """An empty line is no request, but was enough to stop the timer."""
    parts = {0: request("/livez"), 1: b"\r\n"}
    await _linger(site, 50, lambda connection, second: connection.write(parts.get(second, b"")))


@attack("200 heads of a byte a second", allowed=(CLOSED,), patient=True)
async def slow_heads(site: Site) -> None:
    """Headers that come, but never to their end."""
    head = b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000
    await _linger(site, 200, lambda connection, second: _send_slowly(connection, head, second))


@attack("100 bodies of a byte a second", allowed=(CLOSED,), patient=True)
async def slow_bodies(site: Site) -> None:
    """Bodies that come, but never to their end."""
    start = len(GOOD) - len(SEVEN)
    pieces = {0: GOOD[: start + 1]}

    async def step(connection: Connection, second: int) -> None:
        await connection.write(pieces.get(second, GOOD[start + second : start + second + 1]))

    await _linger(site, 100, step)


@attack("64 readers of a byte a second", allowed=(CLOSED,), patient=True)
async def slow_readers(site: Site) -> None:
    """More answers, to requests in a row, than the sockets' buffers take, and nobody reads them."""
    data = request("/openapi.json") * 100
    begun: list[Connection] = []

    async def step(connection: Connection, second: int) -> None:
        if connection not in begun and len(begun) < 4 * (second + 1):  # a burst is another attack
            begun.append(connection)
            await connection.write(data)
        async with asyncio.timeout(0.001):
            await connection.read_some(1)

    await _linger(site, 64, step)


@attack("idle connections of 13 addresses, as many as a service takes", allowed=(200,), short=True)
async def idle_addresses(site: Site) -> None:
    """Nobody else could connect: each address took half of what the others had left."""
    opened: list[Connection] = []
    try:
        for number, source in enumerate(addresses(13)):
            count = max(20, 4_000 >> number)
            opened += [await Connection.open(site.target, source=source) for _ in range(count)]
        for number in range(20):
            request_ = request("/livez") if number % 2 else GOOD
            await site.send(request_, source=f"127.0.2.{number + 1}")
    finally:
        for connection in opened:
            connection.close(reset=True)
