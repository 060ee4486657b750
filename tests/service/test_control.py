from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.control import Control, Message

Received = asyncio.Queue[tuple[Message, int | None]]


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Control, Control, Received, asyncio.Event]]:
    """Two ends, what the second receives, and whether it lost the first."""
    received: Received = asyncio.Queue()
    lost = asyncio.Event()
    here, there = socket.socketpair()
    first = Control(here, lambda *_: None, lambda: None)
    second = Control(there, lambda *one: received.put_nowait(one), lost.set)
    try:
        yield first, second, received, lost
    finally:
        first.close()
        second.close()


@pytest.mark.anyio
async def test_messages_arrive_in_order() -> None:
    """However many lines one read brings."""
    async with pair() as (first, _, received, _):
        for number in range(100):
            assert first.send({"number": number})
        assert list(range(100)) == [(await received.get())[0]["number"] for _ in range(100)]


@pytest.mark.anyio
async def test_a_connection_comes_with_its_message() -> None:
    """Other messages before and behind it take nothing of it."""
    async with pair() as (first, _, received, _):
        ends = [os.pipe() for _ in range(3)]
        for readable, _writable in ends:
            first.send({"other": True})
            first.send({"connection": True}, readable)
        for _readable, writable in ends:
            assert ({"other": True}, None) == await received.get()
            message, descriptor = await received.get()
            assert {"connection": True} == message
            assert descriptor is not None
            os.write(writable, b"x")
            assert b"x" == os.read(descriptor, 1)
            os.close(descriptor)
        for end in ends:
            os.close(end[0])
            os.close(end[1])


@pytest.mark.anyio
async def test_the_other_end_s_loss_is_told() -> None:
    """A worker whose supervisor was killed has to end too."""
    async with pair() as (first, _, _, lost):
        first.close()
        await lost.wait()


@pytest.mark.anyio
async def test_what_is_not_read_is_not_sent() -> None:
    """A supervisor passes over a worker that hangs, instead of waiting for it."""
    here, there = socket.socketpair()
    first = Control(here, lambda *_: None, lambda: None)
    with there:
        while first.send({"connection": True}):
            pass
        assert not first.send({"connection": True})
    first.close()


@pytest.mark.anyio
async def test_nothing_can_be_sent_to_who_is_gone() -> None:
    """It is no error: the process is about to be replaced."""
    async with pair() as (first, second, _, _):
        second.close()
        assert not first.send({"stop": True})
