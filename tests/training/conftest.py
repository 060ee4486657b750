"""A web server that misbehaves as told, three drawn classes and a network small enough to train."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from model.capsnet import CapsNet, CapsNetConfig
from training.datasets import Examples
from training.plan import Plan
from training.recipes import Recipe
from training.trainer import Trainer


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The networks here are too small for several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.fixture(scope="session")
def bars() -> Examples:
    """24 images of a bright bar in one of three places, which is the class."""
    labels = np.arange(24, dtype=np.uint8) % 3
    images = np.zeros((24, 28, 28), np.uint8)
    for image, label in zip(images, labels, strict=True):
        top = 4 + 8 * int(label)
        image[top : top + 4, 4:24] = 255
    return Examples(images, labels)


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    """Two epochs of three steps each."""
    network = CapsNetConfig(
        conv_channels=4,
        primary_types=2,
        primary_dim=4,
        num_classes=3,
        class_dim=4,
        decoder_hidden=(8, 8),
    )
    return Recipe("tiny", network=network, epochs=2, batch_size=8, learning_rate=5e-3)


@pytest.fixture
def make_trainer(bars: Examples, tiny: Recipe, tmp_path: Path) -> Callable[..., Trainer]:
    """`make_trainer(directory, ...)` trains on the bars, by default as `tiny` says."""

    def make(
        directory: str = "run",
        *,
        seed: int = 1,
        validation: Examples | None = None,
        resume: bool = False,
        recipe: Recipe = tiny,
    ) -> Trainer:
        plan = Plan(recipe, seed, bars, validation, tmp_path / directory)
        return Trainer(plan, device=torch.device("cpu"), resume=resume)

    return make


@pytest.fixture(scope="session")
def trained(bars: Examples, tiny: Recipe, tmp_path_factory: pytest.TempPathFactory) -> CapsNet:
    """A network that knows the bars."""
    directory = tmp_path_factory.mktemp("trained")
    plan = Plan(replace(tiny, epochs=8), 1, bars, None, directory)
    trainer = Trainer(plan, device=torch.device("cpu"))
    trainer.run()
    return trainer.network
