from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from service import healthcheck


@pytest.fixture(params=[(200, ""), (503, "127.0.0.1"), (200, "0.0.0.0"), (200, "127.0.0.2")])  # noqa: S104
def status(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that answers with this status, on the host and the port of the settings."""
    given, host = request.param
    monkeypatch.setenv("CAPSNET_HOST", host)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer the probe alone."""
            self.send_response(given if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with HTTPServer((host or "127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("CAPSNET_PORT", str(server.server_port))
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield given
        thread.join()


def test_only_a_ready_service_is_healthy(status: int) -> None:
    """The exit code is 0 for 200; otherwise the reason is said."""
    with pytest.raises(SystemExit) as ending:
        healthcheck.main()
    assert (None if status == 200 else "not ready: 503") == ending.value.code


def test_a_service_that_does_not_listen_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is a reason, not a traceback."""
    monkeypatch.setenv("CAPSNET_PORT", "1")
    with pytest.raises(SystemExit, match=r"not ready: .*refused"):
        healthcheck.main()
