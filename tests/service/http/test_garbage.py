from __future__ import annotations

import asyncio
import gc
import socket
from functools import partial
from typing import Any

import uvicorn
import uvloop

from service.app import create_app
from service.http.protocol import Http1
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings

REQUESTS = 1_000
_SEVEN = (SAMPLES / "7.png").read_bytes()
_CLASSIFY = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"


def _requests() -> list[bytes]:
    """Reads, refusals and classifications, on connections that are kept or end."""
    body = b"Content-Length: %d\r\n\r\n%b" % (len(_SEVEN), _SEVEN)
    return [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /models?unknown=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        _CLASSIFY + body,
        b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]


def _exchange(port: int, requests: list[bytes]) -> None:
    """An answer to each, on connections that the client closes."""
    for data in requests:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(data)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 ")


async def _garbage_of(app: Any, requests: list[bytes], count: int) -> int:
    """Objects that only the collector can free after so many requests."""
    config = uvicorn.Config(
        app, http=partial(Http1, upload_timeout_s=60), ws="none", lifespan="off", log_config=None
    )  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        port = listener.getsockname()[1]
        # What the first requests leave is kept from then on.
        await asyncio.to_thread(_exchange, port, requests * 3)
        await asyncio.sleep(0.1)
        gc.collect()
        gc.disable()
        try:
            await asyncio.to_thread(_exchange, port, requests * (count // len(requests)))
            await asyncio.sleep(0.1)
            found = gc.collect()
        finally:
            gc.enable()
        server.should_exit = True
        await serving
    return found


def test_requests_leave_nothing_to_the_collector(settings: Settings) -> None:
    """A thousand requests leave fewer unreachable objects than a hundredth of their number."""
    app = create_app(settings, open_engine(load_runtimes(settings)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_garbage_of(app, _requests(), REQUESTS))
    assert found < REQUESTS // 100
