"""A web server that misbehaves as a test asks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Literal

import pytest


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[str, list[str | None]]]]:
    """`serve(files, faults=(), ranges=True)` starts a server of these files, by name.

    `faults` says how the first, second, ... request is treated: a status code is answered, "cut"
    announces everything and sends half of it, None is served well, as are all further requests.

    Returns the base address and the list of the Range headers of all requests so far.
    """
    monkeypatch.setenv("no_proxy", "*")
    with ExitStack() as stack:

        def start(
            files: dict[str, bytes],
            *,
            faults: Iterable[int | Literal["cut"] | None] = (),
            ranges: bool = True,
        ) -> tuple[str, list[str | None]]:
            asked: list[str | None] = []
            handler = _handler(files, iter(faults), asked, ranges=ranges)
            server = stack.enter_context(HTTPServer(("127.0.0.1", 0), handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/", asked

        yield start


def _handler(
    files: dict[str, bytes],
    faults: Iterator[int | Literal["cut"] | None],
    asked: list[str | None],
    *,
    ranges: bool,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Range"])
            fault = next(faults, None)
            content = files.get(self.path.removeprefix("/"))
            if isinstance(fault, int):
                self.send_error(fault)
            elif content is None:
                self.send_error(404)
            else:
                self._send(content, cut=fault == "cut")

        def _send(self, content: bytes, *, cut: bool) -> None:
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
            if ranges and wanted:
                start = int(wanted[1])
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                last = len(content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
                content = content[start:]
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
