from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import Mock

import pytest

from service.processes.acceptor import Acceptor
from service.processes.board import Board
from tests.service.processes.conftest import until

pytestmark = pytest.mark.anyio


class Port:
    """A port, a board, and acceptors of one process that stand for those of several."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listener.setblocking(False)
        self.board = Board.create(4)

    def open(self, slot: int, *, can_answer: bool = True) -> Acceptor:
        """An acceptor that keeps what it accepts."""

        async def serve(connection: socket.socket) -> None:
            self._stack.enter_context(connection)

        acceptor = Acceptor(
            [self._listener.dup()], self.board, slot, serve=serve, can_answer=lambda: can_answer
        )
        acceptor.resume()
        self._stack.callback(acceptor.close, empty=False)
        return acceptor

    def connect(self, count: int) -> None:
        """Open connections."""
        for _ in range(count):
            address = self._listener.getsockname()
            self._stack.enter_context(socket.create_connection(address))


@pytest.fixture
def port() -> Iterator[Port]:
    with ExitStack() as stack:
        yield Port(stack)


async def test_connections_are_divided_evenly(port: Port) -> None:
    """However they come."""
    acceptors = [port.open(slot) for slot in range(2)]
    for more in (1, 6, 1):
        before = sum(one.connections for one in acceptors)
        port.connect(more)
        await until(lambda: sum(one.connections for one in acceptors) == before + more)  # noqa: B023
    assert [4, 4] == [one.connections for one in acceptors]


async def test_a_worker_that_does_not_accept_is_waited_for_shortly(port: Port) -> None:
    """It may be stopped: the other takes what it leaves."""
    port.board.note(1, 0)
    acceptor = port.open(0)
    port.connect(3)
    await until(lambda: acceptor.connections == 3)


async def test_a_worker_that_cannot_answer_yet_leaves_connections_to_the_others(
    port: Port,
) -> None:
    """Even if they have many."""
    starting, ready = port.open(0, can_answer=False), port.open(1)
    port.connect(5)
    await until(lambda: ready.connections == 5)
    assert 0 == starting.connections


async def test_a_worker_that_cannot_answer_yet_waits_for_as_long_as_another_can(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it looks."""
    monkeypatch.setattr("service.processes.acceptor._STARTING_LOOK_S", 0.001)
    port.board.note(1, 9)
    starting = port.open(0, can_answer=False)
    look = Mock(wraps=port.board.has_fewer)
    monkeypatch.setattr(port.board, "has_fewer", look)
    port.connect(1)
    await until(lambda: look.call_count > 9 or starting.connections)
    assert 0 == starting.connections


async def test_a_worker_that_is_alone_accepts_before_it_can_answer(port: Port) -> None:
    """Probes ask it how it is."""
    starting = port.open(0, can_answer=False)
    port.connect(1)
    await until(lambda: starting.connections == 1)


@pytest.mark.parametrize("empty", [True, False])
async def test_the_last_takes_all_that_waits(port: Port, *, empty: bool) -> None:
    """However many: what nobody accepts is reset."""
    acceptor = port.open(0)
    port.connect(100)
    acceptor.close(empty=empty)
    assert (100 if empty else 0) == acceptor.connections
    assert not port.board.accepts(0)
    await asyncio.sleep(0)


async def test_a_connection_that_was_closed_counts_no_more(port: Port) -> None:
    """The others see it on the board."""
    acceptor = port.open(0)
    port.connect(2)
    await until(lambda: acceptor.connections == 2)
    port.board.note(1, 1)
    assert port.board.has_fewer(0)
    acceptor.count_closed()
    assert not port.board.has_fewer(0)


async def test_a_worker_without_descriptors_closes_all_the_same(port: Port) -> None:
    """What it cannot accept is left to others."""
    acceptor = port.open(0)
    port.connect(1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        acceptor.close(empty=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not port.board.accepts(0)
