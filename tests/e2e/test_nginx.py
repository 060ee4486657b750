"""The service behind a real nginx with docker/nginx.conf."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.http.middleware import PROBLEM, REQUEST_ID
from service.pictures import SAMPLES
from tests.e2e.conftest import QUICK
from tests.processes import SOURCE, Command, free_port, nginx, running

SEVEN = (SAMPLES / "7.png").read_bytes()
SMALL_LIMIT = 100_000
"""Bytes that the service takes in these tests; nginx takes more."""

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]


@pytest.fixture(scope="module")
def proxied(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of nginx, behind which a service with a small body limit answers."""
    environment = {**QUICK, "CAPSNET_MAX_BODY_BYTES": str(SMALL_LIMIT)}
    folder = tmp_path_factory.mktemp("nginx")
    with running(command, environment) as (_process, direct):
        assert direct.base_url.port
        with nginx(folder, upstream=direct.base_url.port) as client:
            yield client


def test_answers_pass(proxied: httpx.Client) -> None:
    """A picture is classified; an id that the sender gave is the answer's, another is made."""
    answer = proxied.post("/classify", files={"file": SEVEN}, headers={REQUEST_ID: "from-outside"})
    assert 7 == answer.json()["predictions"][0]["label"]
    assert "from-outside" == answer.headers[REQUEST_ID]
    made = proxied.get("/livez", headers={REQUEST_ID: "not an id"}).headers[REQUEST_ID]
    assert 32 == len(made)


def test_refusals_of_the_service_pass(proxied: httpx.Client) -> None:
    """A 413 of the service arrives as the service wrote it, under the same id."""
    answer = proxied.post(
        "/classify", files={"file": bytes(SMALL_LIMIT)}, headers={REQUEST_ID: "large"}
    )
    assert 413 == answer.status_code
    assert PROBLEM == answer.headers["Content-Type"]
    assert "large" == answer.json()["request_id"] == answer.headers[REQUEST_ID]
    assert f"{SMALL_LIMIT:,} bytes" in answer.json()["detail"]


def ask_raw(client: httpx.Client, path: str, *, times: int = 1, source: str = "") -> bytes:
    """The answers to a path that no client would send as it is."""
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode()
    with connect(client, source) as connection:
        connection.sendall((head + b"\r\n") * (times - 1) + head + b"Connection: close\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def connect(client: httpx.Client, source: str) -> socket.socket:
    """A connection to nginx from an address of the loopback device."""
    assert client.base_url.port
    there = (client.base_url.host, client.base_url.port)
    return socket.create_connection(there, 60, source_address=(source, 0))


def test_one_address_has_a_limit_of_requests(proxied: httpx.Client) -> None:
    """Beyond the burst nginx answers by itself, with a problem of the service's type."""
    answers = ask_raw(proxied, "/metrics", times=900, source="127.0.0.7")
    assert answers.count(b"HTTP/1.1 403") >= 200
    assert answers.count(b"HTTP/1.1 429") >= 1
    expect_busy(answers.rpartition(b"HTTP/1.1 429")[2].partition(b"HTTP/1.1")[0])


def test_one_address_has_a_limit_of_requests_at_once(proxied: httpx.Client) -> None:
    """The 65th is refused, another address is answered, and so is the first when one has ended."""
    withheld = b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(proxied, "127.0.0.8")) for _ in range(64)]
        for connection in connections:
            connection.sendall(withheld)
        until(lambda: ask_raw(proxied, "/livez", source="127.0.0.8"), b"429")
        expect_busy(ask_raw(proxied, "/livez", source="127.0.0.8"))
        assert b" 200 " in ask_raw(proxied, "/livez", source="127.0.0.9")
        connections[0].close()
        until(lambda: ask_raw(proxied, "/livez", source="127.0.0.8"), b"200")


def until(ask: Callable[[], bytes], status: bytes) -> None:
    """Ask until the answer has that status, less often than the other limit allows."""
    deadline = time.monotonic() + 5  # nginx gives withheld bodies up after 10 s
    while ask().split(b" ")[1] != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def expect_busy(answer: bytes) -> None:
    """It is a 429 of nginx, in the service's words."""
    assert b"urn:capsnet:problem:busy" in answer
    assert b"Retry-After: 1" in answer
    assert PROBLEM.encode() in answer


def test_the_service_knows_the_client_s_address(start_service: Start, tmp_path: Path) -> None:
    """It takes nginx's word for it: what one address may hold, and the log, go by the client."""
    log = tmp_path / "log"
    script = f"exec {' '.join(SOURCE)} 2>> {log}"
    keys = '["an-api-key-of-some-length"]'
    _process, direct = start_service(
        command=lambda _environment: ["sh", "-c", script], CAPSNET_API_KEYS=keys
    )
    assert direct.base_url.port
    with nginx(tmp_path, upstream=direct.base_url.port) as client:
        transport = httpx.HTTPTransport(local_address="127.0.0.9")
        with httpx.Client(transport=transport, base_url=client.base_url) as other:
            assert 401 == other.get("/models").status_code
    deadline = time.monotonic() + 5
    while "client=127.0.0.9" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_a_service_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """Callers get a 503 that says when to try again, not a page of nginx."""
    with nginx(tmp_path, upstream=free_port()) as client:
        answer = client.post("/classify", files={"file": SEVEN})
    assert 503 == answer.status_code
    assert PROBLEM == answer.headers["Content-Type"]
    assert "urn:capsnet:problem:unavailable" == answer.json()["type"]
    assert "1" == answer.headers["Retry-After"]
    assert answer.json()["request_id"] == answer.headers[REQUEST_ID]
