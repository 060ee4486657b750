from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from service.pictures import SAMPLES
from service.settings import Settings
from tests.e2e.conftest import QUICK
from tests.processes import (
    PATIENCE_S,
    PLAIN,
    SOURCE,
    SlowStorage,
    free_port,
    hanging,
    open_client,
    patch_workers,
    wait_until_ok,
)

TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
source_alone = pytest.mark.usefixtures("source_alone")


def test_sigterm_drains_and_ends_with_zero(start_service: Start) -> None:
    """Unready at once, still answering during the grace, then gone with code 0."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="1")
    picture = (SAMPLES / "7.png").read_bytes()
    process.send_signal(signal.SIGTERM)
    statuses = []
    with contextlib.suppress(httpx.TransportError):
        while True:
            statuses.append(client.get("/readyz").status_code)
            if statuses[-1] == httpx.codes.SERVICE_UNAVAILABLE:
                answer = client.post("/classify", files={"file": picture})
                assert 7 == answer.json()["predictions"][0]["label"]
    assert httpx.codes.SERVICE_UNAVAILABLE == statuses[-1]
    assert 0 == process.wait(timeout=60)


@source_alone
def test_a_closed_terminal_ends_it() -> None:
    """Who started it there and closes the window does not leave it behind."""
    port = free_port()
    environment = {**os.environ, **QUICK, "CAPSNET_PORT": str(port), "CAPSNET_DRAIN_GRACE_S": "0"}
    ours, its = os.openpty()
    take = [sys.executable, "-c", TAKE_TERMINAL, *SOURCE]
    process = subprocess.Popen(take, env=environment, stdin=its, start_new_session=True)
    os.close(its)
    with open_client(port) as client:
        wait_until_ok(client, process, "/readyz")
    os.close(ours)
    assert 0 == process.wait(timeout=60)


def test_second_sigterm_cuts_the_grace_short(start_service: Start) -> None:
    """The process ends at once; the code is still 0."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="60")
    process.send_signal(signal.SIGTERM)
    while client.get("/readyz").status_code == httpx.codes.OK:
        pass
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)


def test_other_signals_do_not_cut_the_grace_short(start_service: Start) -> None:
    """A terminal that changes its size ends no request, nor does a reload that comes too late."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="2")
    process.send_signal(signal.SIGTERM)
    while client.get("/readyz").status_code == httpx.codes.OK:
        pass
    for other in (signal.SIGHUP, signal.SIGWINCH):
        process.send_signal(other)
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        assert httpx.codes.OK == client.get("/livez").status_code
    assert 0 == process.wait(timeout=60)


def test_request_under_way_at_sigterm_is_answered(start_service: Start) -> None:
    """A request whose body is still arriving when SIGTERM comes gets its answer."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="0")
    picture = (SAMPLES / "7.png").read_bytes()

    def body() -> Iterator[bytes]:
        yield picture[:100]
        process.send_signal(signal.SIGTERM)
        while client_of_another_connection_is_answered(str(client.base_url)):
            pass
        yield picture[100:]

    answer = client.post("/classify", content=body(), headers={"Content-Type": "image/png"})
    assert 7 == answer.json()["predictions"][0]["label"]
    assert 0 == process.wait(timeout=60)


def client_of_another_connection_is_answered(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez", verify=PLAIN).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@source_alone
def test_an_inference_that_never_ends_does_not_hold_up_the_end(
    start_service: Start, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its caller gets a problem, the process ends in bounded time, and its code is not 0."""
    environment, stuck = hanging(tmp_path, on_the_loop=False)
    process, client = start_service(CAPSNET_WORKERS="1", CAPSNET_DRAIN_TIMEOUT_S="1", **environment)
    picture = (SAMPLES / "7.png").read_bytes()
    headers = {"X-Request-Timeout": "0.2"}
    while not stuck.exists():
        answer = client.post("/classify", files={"file": picture}, headers=headers)
        assert httpx.codes.GATEWAY_TIMEOUT == answer.status_code
    process.send_signal(signal.SIGTERM)
    assert 1 == process.wait(timeout=60)
    assert "the last inference did not end within 3 s" in capfd.readouterr().err


LOST = """
def encode(*_):
    raise DeviceLostError("the GPU has fallen off the bus")

Runtime.encode = encode
"""


@source_alone
def test_a_worker_that_lost_its_device_is_replaced(
    start_service: Start, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its caller gets a problem, and the log has an entry."""
    process, client = start_service(CAPSNET_WORKERS="1", **patch_workers(tmp_path, LOST))
    picture = (SAMPLES / "7.png").read_bytes()
    answer = client.post("/classify", files={"file": picture})
    assert httpx.codes.SERVICE_UNAVAILABLE == answer.status_code
    wait_until_ok(client, process, "/readyz")
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)
    assert "inference failed: the GPU has fallen off the bus" in capfd.readouterr().err


@source_alone
def test_a_reload_that_hangs_does_not_hold_up_the_end(start_service: Start, tmp_path: Path) -> None:
    """Bundles on storage that does not answer are left where they are."""
    shutil.copytree(Settings().bundles / "mnist-compact", tmp_path / "bundles" / "mnist-compact")
    storage = SlowStorage(tmp_path)
    process, client = start_service(
        **storage.environment,
        CAPSNET_BUNDLES=str(tmp_path / "bundles"),
        CAPSNET_DEFAULT_MODEL="mnist-compact",
        CAPSNET_ADMIN_KEYS='["a-key-of-tests-alone"]',
        CAPSNET_DRAIN_GRACE_S="0",
        CAPSNET_DRAIN_TIMEOUT_S="1",
    )
    storage.hold()
    with pytest.raises(httpx.ReadTimeout):
        client.post("/models/reload", headers={"X-API-Key": "a-key-of-tests-alone"}, timeout=1)
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=20)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"CAPSNET_DEFAULT_MODEL": "nothing"}, "'nothing' is not among the loaded bundles"),
        ({"CAPSNET_PORT": "70000"}, "CAPSNET_PORT: Input should be less than or equal to 65535"),
        ({"CAPSNET_API_KEYS_FILE": "/nowhere"}, "the file of API keys cannot be read"),
    ],
)
def test_bad_start_is_one_message_and_a_failure(
    run_service: Callable[..., subprocess.CompletedProcess[str]],
    environment: dict[str, str],
    message: str,
) -> None:
    """What keeps the service from starting is said, without a traceback."""
    result = run_service(**{**QUICK, **environment})
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_probes_do_not_hold_up_the_end_of_a_bad_start(
    command: Callable[[dict[str, str]], list[str]],
) -> None:
    """Nobody is accepted by a worker that failed: it need not wait for those who keep asking."""
    port = free_port()
    settings = {**QUICK, "CAPSNET_DEFAULT_MODEL": "nothing", "CAPSNET_PORT": str(port)}
    began = time.monotonic()
    with subprocess.Popen(command(settings), env={**os.environ, **settings}) as process:
        with open_client(port) as client:
            while process.poll() is None and time.monotonic() < began + PATIENCE_S:
                with contextlib.suppress(httpx.TransportError):
                    assert 503 == client.get("/readyz").status_code
        process.kill()
    assert 1 == process.returncode
    assert time.monotonic() - began < 25  # the drain alone has 30
