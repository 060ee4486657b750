from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.control import Message
from service.settings import Settings
from service.supervisor import Supervisor


@dataclass
class Stub:
    """A worker whose socket is open, or not."""

    ready: bool
    is_open: bool
    up: bool = True
    taken: int = 0
    has_taken: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, message: Message, descriptor: int) -> bool:
        """Take a connection."""
        assert {"connection": True} == message
        assert descriptor >= 0
        if self.is_open:
            self.taken += 1
            self.has_taken.set()
        return self.is_open


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(Settings(workers=2), tmp_path)


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with socket.socket() as one:
        yield one


@pytest.mark.anyio
async def test_connections_go_to_ready_workers_in_turn(supervisor: Supervisor) -> None:
    """One that starts gets none as long as another is ready."""
    workers = [
        Stub(ready=True, is_open=True),
        Stub(ready=True, is_open=True),
        Stub(ready=False, is_open=True),
    ]
    supervisor._workers = workers  # type: ignore[assignment]
    for _ in range(6):
        supervisor._hand_over(socket.socket())
    assert 6 == workers[0].taken + workers[1].taken
    assert 2 <= workers[0].taken <= 4


@pytest.mark.anyio
async def test_a_worker_that_has_just_died_is_passed_over(
    supervisor: Supervisor, connection: socket.socket
) -> None:
    """Before the supervisor knows of its end; a worker that starts takes the connection."""
    starting = Stub(ready=False, is_open=True)
    supervisor._workers = [Stub(ready=True, is_open=False), starting]  # type: ignore[list-item]
    supervisor._hand_over(connection)
    assert 1 == starting.taken
    assert -1 == connection.fileno()


@pytest.mark.anyio
async def test_a_connection_waits_until_a_worker_takes_it(
    supervisor: Supervisor, connection: socket.socket
) -> None:
    """Where all have just died it is kept, and handed to the first that starts."""
    worker = Stub(ready=True, is_open=False)
    supervisor._workers = [worker]  # type: ignore[list-item]
    supervisor._hand_over(connection)
    assert connection.fileno() >= 0
    worker.is_open = True
    await asyncio.wait_for(worker.has_taken.wait(), 10)
    assert 1 == worker.taken
    assert -1 == connection.fileno()
