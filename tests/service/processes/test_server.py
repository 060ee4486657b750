from __future__ import annotations

import asyncio
import errno
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from service.processes.server import Server
from service.settings import Settings


class FailingListener(socket.socket):
    """A listening socket whose first `accept` fails."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self.error: int | None = error
        self.bind(("127.0.0.1", 0))
        self.listen()

    def accept(self) -> tuple[socket.socket, Any]:
        """Fail once, then accept as usual."""
        if self.error is not None:
            error, self.error = self.error, None
            raise OSError(error, "injected")
        return super().accept()


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize(
    ("error", "least_s"),
    [(errno.EMFILE, 0.9), (errno.ECONNABORTED, 0.0)],
    ids=["EMFILE", "ECONNABORTED"],
)
def test_accepting_goes_on_after_an_error(new_loop: Any, error: int, least_s: float) -> None:
    """At once after an aborted connection, after a pause without descriptors; with TCP_NODELAY."""
    with FailingListener(error) as listener, asyncio.Runner(loop_factory=new_loop) as runner:
        waited_s = runner.run(_seconds_until_served(listener))
    assert least_s <= waited_s


def _server(protocol: Any) -> Server:
    """A server of connections with this protocol."""
    state = SimpleNamespace(
        can_answer=True,
        failure=None,
        draining=False,
        admission=None,
        connections=None,
        ending=asyncio.Event(),
    )
    app = cast("Any", SimpleNamespace(state=state))
    server = Server(app, Settings(), lambda _: None, lambda: True)
    server.config.http_protocol_class = cast("Any", lambda **_: protocol())
    server.lifespan = cast("Any", SimpleNamespace(state={}))
    return server


async def _seconds_until_served(listener: socket.socket, connections: int = 1) -> float:
    """Seconds until a server has accepted so many connections of a listener, the last a new one."""
    loop = asyncio.get_running_loop()
    served = asyncio.Event()
    accepted_ports = set()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted_ports.add(transport.get_extra_info("peername"))
            if len(accepted_ports) == connections:
                served.set()
            transport.close()

    server = _server(Accepted)
    server.listen([listener])
    began = loop.time()
    _, writer = await asyncio.open_connection(*listener.getsockname())
    async with asyncio.timeout(10):
        await served.wait()
    writer.close()
    loop.remove_reader(listener)
    return loop.time() - began
