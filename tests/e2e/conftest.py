from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from model.bundle import MANIFEST
from service.settings import Settings
from training.datasets import DATASETS, Examples, hold_out, load

COMMAND = [sys.executable, "-m", "service"]
BUNDLES = sorted(path.parent.name for path in Settings().bundles.glob(f"*/{MANIFEST}"))


@pytest.fixture(params=BUNDLES)
def bundle_name(request: pytest.FixtureRequest) -> str:
    """Each bundle that ships."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the data sets; skips where there is none."""
    if "CAPSNET_DATA_DIR" not in os.environ:
        pytest.skip("needs the data sets: set CAPSNET_DATA_DIR")
    return Path(os.environ["CAPSNET_DATA_DIR"])


@pytest.fixture(scope="session")
def validation_digits(data_dir: Path) -> Examples:
    """The last 5,000 training digits."""
    return hold_out(load(DATASETS["mnist"], "train", data_dir, fetch=False), 5000)[1]


@pytest.fixture(scope="session")
def service() -> Iterator[httpx.Client]:
    """The service as `make serve` starts it, in a process of its own, with all shipped bundles."""
    with _running({}) as (_process, client):
        yield client


@pytest.fixture
def start_service() -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]]:
    """Starts a service of the test's own, with further settings; ends it with the test."""
    with ExitStack() as stack:
        yield lambda **environment: stack.enter_context(_running(environment))


@pytest.fixture
def run_service() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a service that is expected to end by itself."""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            COMMAND,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


@contextmanager
def _running(
    environment: dict[str, str],
) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"CAPSNET_DRAIN_GRACE_S": "0", "PORT": str(port), **environment}
    process = subprocess.Popen(COMMAND, env={**os.environ, **settings})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            _wait_until_ready(client, process)
            yield process, client
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the service ended at its start"
        try:
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail("the service was not ready within a minute")
