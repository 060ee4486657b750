from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from model.bundle import MANIFEST
from service.pictures import SAMPLES
from tests.e2e.conftest import QUICK
from tests.processes import (
    PATIENCE_S,
    Command,
    SlowStorage,
    free_port,
    patch_workers,
    running,
)

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]


@pytest.fixture
def slow(tmp_path: Path, container: object) -> SlowStorage:
    """Storage with a bundle whose manifest is none, and which does not answer yet."""
    if container:
        pytest.skip("a container does not see this folder")
    (tmp_path / "bundles" / "mnist").mkdir(parents=True)
    (tmp_path / "bundles" / "mnist" / MANIFEST).write_text("no manifest")
    storage = SlowStorage(tmp_path)
    storage.hold()
    return storage


def test_uvicorn_alone_serves_the_app(container: object) -> None:
    """It loads in its lifespan and needs no supervisor."""
    if container:
        pytest.skip("starts the source")

    def command(settings: dict[str, str]) -> list[str]:
        uvicorn = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
        return [*uvicorn, "--port", settings["CAPSNET_PORT"]]

    with running(command, {**QUICK, "CAPSNET_DEVICE": "cpu"}) as (process, client):
        answer = client.post("/classify", files={"file": (SAMPLES / "7.png").read_bytes()})
        assert 7 == answer.json()["predictions"][0]["label"]
    assert process.returncode in (0, -signal.SIGTERM)


def test_the_port_is_open_while_bundles_load(
    start_service: Start, slow: SlowStorage, tmp_path: Path
) -> None:
    """The process is alive, shows samples and says that it is not ready; on SIGTERM, it ends."""
    process, client = start_service(
        probe="/livez", CAPSNET_BUNDLES=str(tmp_path / "bundles"), **slow.environment
    )
    assert httpx.codes.SERVICE_UNAVAILABLE == client.get("/readyz").status_code
    assert httpx.codes.OK == client.get("/samples/7.png").status_code
    picture = (SAMPLES / "7.png").read_bytes()
    answer = client.post("/classify", files={"file": picture})
    assert httpx.codes.SERVICE_UNAVAILABLE == answer.status_code
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)


def test_a_worker_that_is_told_to_end_before_it_has_begun_ends_well(
    command: Command, container: object, tmp_path: Path
) -> None:
    """It answers the supervisor's pings already, and has no handler of signals yet."""
    if container:
        pytest.skip("patches the workers of this machine")
    begun = tmp_path / "begun"
    patch = patch_workers(
        tmp_path,
        f"""
        import uvicorn

        plain = uvicorn.Server.run

        def run(server, sockets=None):
            pathlib.Path({str(begun)!r}).touch()
            threading.Event().wait(3)
            plain(server, sockets)

        uvicorn.Server.run = run
        """,
    )
    settings = {**QUICK, **patch, "CAPSNET_PORT": str(free_port()), "CAPSNET_WORKERS": "1"}
    with subprocess.Popen(command(settings), env={**os.environ, **settings}) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)  # the supervisor asks twice a second
        process.terminate()
        assert 0 == process.wait(timeout=60)


def test_a_failed_loading_ends_the_process(
    start_service: Start, slow: SlowStorage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A service that will never answer says why and ends, for its supervisor to see."""
    settings = {"CAPSNET_BUNDLES": str(tmp_path / "bundles"), "CAPSNET_WORKERS": "1"}
    process, _client = start_service(probe="/livez", **settings, **slow.environment)
    slow.release()
    assert 1 == process.wait(timeout=60)
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("capsnet-service: the default model 'mnist' is not among the loaded")


def test_a_port_that_is_taken_ends_the_process(
    run_service: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The log names the address, and nothing is loaded for it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run_service(CAPSNET_PORT=str(taken.getsockname()[1]))
    assert result.returncode != 0
    assert "address already in use" in result.stderr.lower()
    assert "Traceback" not in result.stderr
