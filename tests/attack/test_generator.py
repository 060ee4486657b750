"""The load generator, against a server that counts and sometimes refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.attack.generator import CLOSED, REFUSED, WRONG, Load, encode, finish, generate, start
from tests.attack.wire import request

ANSWER = b'{"label": 7}'


class Handler(BaseHTTPRequestHandler):
    """Answers 7; by the path, it refuses the first request of a connection, or hangs up."""

    protocol_version = "HTTP/1.1"
    refusals = 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/hang-up":
            self.close_connection = True
            return
        if self.path == "/slow":
            time.sleep(0.3)
        refuses = self.path == "/busy" and Handler.refusals % 2 == 0
        Handler.refusals += self.path == "/busy"
        self.send_response(429 if refuses else 200)
        if refuses:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def load(port: int, path: str = "/", *, label: int | None = 7, **how: float) -> Load:
    requests = encode([request(path, b"a picture")])
    return Load(port=port, requests=requests, labels=[label], **how)  # type: ignore[arg-type]


def test_connections_wait_for_their_answers(port: int) -> None:
    """So three of them have at most three slow requests in 0.3 seconds."""
    found = generate(load(port, "/slow", connections=3, seconds=1.5))
    assert 0 < found.right <= 15
    assert {} == found.missed
    assert found.p50_ms >= 300


def test_requests_at_a_rate_do_not_wait(port: int) -> None:
    """Twenty slow ones a second overlap, and none is late because of another."""
    found = generate(load(port, "/slow", rate=20, seconds=1))
    assert (20, 20) == (found.sent, found.right)


def test_another_label_is_wrong(port: int) -> None:
    """The generator knows which label is right."""
    found = generate(load(port, label=3, rate=10, seconds=0.5))
    assert (5, {WRONG: 5}) == (found.wrong, found.missed)


@pytest.mark.parametrize(("path", "why"), [("/hang-up", CLOSED), ("/", REFUSED)])
def test_what_is_not_answered_is_lost(path: str, why: str, port: int) -> None:
    """By a server that hangs up, or by none."""
    found = generate(load(port if why == CLOSED else 1, path, rate=10, seconds=0.5))
    assert (5, {why: 5}) == (found.failures, found.missed)


def test_a_patient_client_asks_a_second_time(port: int) -> None:
    """Until its input closes; what is right at last is not missed."""
    process = start(load(port, "/busy", rate=4, retries=True, half_anew=True))
    time.sleep(1.2)
    found = finish(process)
    assert found.refused
    assert found.sent == found.right + sum(found.missed.values())
