"""Clients that send all of a body but its end."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

import httpx

from service.pictures import SAMPLES
from service.settings import Settings

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
SIZE = Settings().max_body_bytes
HEAD = (
    b"POST /classify HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: image/png\r\nContent-Length: %d\r\n\r\n"
)


def test_withheld_bodies_keep_neither_room_nor_memory(start_service: Start) -> None:
    """Beside thirty of them small pictures are answered; afterwards the memory is free again."""
    seven = (SAMPLES / "7.png").read_bytes()
    _process, client = start_service(
        CAPSNET_WORKERS="1",
        CAPSNET_MODELS='["mnist-compact"]',
        CAPSNET_DEFAULT_MODEL="mnist-compact",
    )
    assert client.base_url.port
    address = (client.base_url.host, client.base_url.port)
    assert client.post("/classify", files={"file": seven}).is_success
    before = resident_mb(client)
    with ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(socket.create_connection(address, 60))
            connection.sendall(HEAD % SIZE + bytes(SIZE - 10))
        assert resident_mb(client) > before + 150
        for _ in range(10):
            assert client.post("/classify", files={"file": seven}).is_success
    deadline = time.monotonic() + 30
    while resident_mb(client) > before + 50:
        assert time.monotonic() < deadline, (
            f"{before:.0f} MB before, {resident_mb(client):.0f} after"
        )
        time.sleep(0.2)


def resident_mb(client: httpx.Client) -> float:
    """Memory of all processes of the service, as they report it."""
    text = client.get("/metrics").text
    found = re.findall(r"^process_resident_memory_bytes\S* (\S+)$", text, re.MULTILINE)
    assert found
    return sum(map(float, found)) / 1e6
