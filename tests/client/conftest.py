from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from capsnet import CapsNet
from tests.processes import SOURCE, running

ADMIN_KEY = "admin-key-of-the-tests"
MAX_PICTURES = 7
"""Of one request: fewer than a client would send by itself."""


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here has TLS, and reading certificates takes each client 20 ms."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(Path(__file__).parent))


@pytest.fixture(scope="session")
def service() -> Iterator[httpx.Client]:
    """The real service with two bundles that ship, and plain httpx to ask it."""
    settings = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_MODELS": '["mnist-compact", "multimnist-attention"]',
        "CAPSNET_DEFAULT_MODEL": "mnist-compact",
        "CAPSNET_MAX_PICTURES": str(MAX_PICTURES),
        "CAPSNET_ADMIN_KEYS": json.dumps([ADMIN_KEY]),
    }
    with running(lambda _: SOURCE, settings) as (_, client):
        yield client


@pytest.fixture(scope="session")
def url(service: httpx.Client) -> str:
    """Where it listens."""
    return str(service.base_url)


@pytest.fixture
def capsnet(url: str) -> Iterator[CapsNet]:
    """The client of the real service."""
    with CapsNet(url, api_key=ADMIN_KEY) as client:
        yield client


@dataclass
class Script:
    """A server that sends what a test wrote down, one answer for each connection."""

    url: str
    answers: list[bytes]
    requests: list[str] = field(default_factory=list)
    """What came, in order; headers in lower case."""
    hang: threading.Event = field(default_factory=threading.Event)
    """Until it is set, connections stay open once the answers have run out."""


Serve = Callable[..., Script]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(answer, ...)` starts a server that gives these answers and closes after each."""
    scripts: list[tuple[Script, socket.socket, threading.Thread]] = []

    def start(*answers: bytes) -> Script:
        listener = socket.create_server(("127.0.0.1", 0))
        script = Script(f"http://127.0.0.1:{listener.getsockname()[1]}", list(answers))
        thread = threading.Thread(target=_play, args=(script, listener))
        thread.start()
        scripts.append((script, listener, thread))
        return script

    yield start
    for script, listener, thread in scripts:
        script.hang.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def _play(script: Script, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            script.requests.append(_read_request(connection))
            if script.answers:
                connection.sendall(script.answers.pop(0))
            else:
                script.hang.wait()


def _read_request(connection: socket.socket) -> str:
    content = b""
    while b"\r\n\r\n" not in content:
        content += connection.recv(65536)
    head, _, body = content.partition(b"\r\n\r\n")
    text = head.decode().lower()
    length = int(text.partition("content-length: ")[2].split("\r\n")[0] or 0)
    while len(body) < length:
        body += connection.recv(65536)
    return text


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """An HTTP answer."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def problem(status: int, slug: str, *headers: str) -> bytes:
    """An answer with problem details."""
    members = {
        "type": f"urn:capsnet:problem:{slug}",
        "title": "In words",
        "status": status,
        "detail": "what is wrong",
        "parameter": "dim",
        "request_id": "7c1d0f",
    }
    body = json.dumps(members).encode()
    return answer(status, body, "Content-Type: application/problem+json", *headers)
