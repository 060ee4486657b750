from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from model.bundle import MANIFEST
from service.settings import Settings
from tests.attack.service import Service
from tests.e2e.callers import Callers
from tests.processes import (
    PATIENCE_S,
    PLAIN,
    SOURCE,
    WORKER,
    free_port,
    hanging,
    open_client,
    wait_until_ok,
)

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
MODEL = "mnist-compact"
SAMPLE = (Path(__file__).parents[2] / "service/samples/7.png").read_bytes()
KEY = "a-key-of-tests-alone"
pytestmark = pytest.mark.usefixtures("source_alone")


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    """A folder with one shipped bundle that the test may change."""
    shutil.copytree(Settings().bundles / MODEL, tmp_path / "bundles" / MODEL)
    return tmp_path / "bundles"


def few(bundles: Path) -> dict[str, str]:
    """Settings of two workers with one small bundle."""
    return {
        "CAPSNET_BUNDLES": str(bundles),
        "CAPSNET_DEFAULT_MODEL": MODEL,
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "2",
    }


def workers(process: subprocess.Popen[bytes] | Service) -> list[int]:
    """Process ids of a supervisor's workers."""
    pid = process.pid
    found = []
    for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            if WORKER.encode() in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0"):
                found.append(int(one))
    return found


def wait_for(true: Callable[[], bool]) -> None:
    """Return when something has become true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def classify(client: httpx.Client) -> httpx.Response:
    """Over a connection of its own, so that workers take turns."""
    return httpx.post(
        f"{client.base_url}/classify", files={"file": SAMPLE}, timeout=PATIENCE_S, verify=PLAIN
    )


def versions(client: httpx.Client, asked: int = 6) -> set[str]:
    """The versions that answers name."""
    return {classify(client).json()["version"] for _ in range(asked)}


def change(bundles: Path) -> str:
    """Give the bundle another version, as other weights would."""
    path = bundles / MODEL / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["training"]["note"] = str(time.time_ns())
    path.write_text(json.dumps(manifest))
    return str(manifest["training"]["note"])


def notes(client: httpx.Client, asked: int = 6) -> set[str | None]:
    """What the manifests of the workers say."""
    url = f"{client.base_url}/models/{MODEL}"
    return {httpx.get(url, verify=PLAIN).json()["training"].get("note") for _ in range(asked)}


def test_metrics_take_their_room_at_the_start(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """A hole in a mapped file would end a process; any worker tells the metrics of all."""
    _, client = start_service(**few(bundles), TMPDIR=str(tmp_path))
    for _ in range(8):
        classify(client)
    files = [path.stat() for path in tmp_path.glob("capsnet-*/*.db")]
    assert len(files) == 8
    assert [] == [file for file in files if 512 * file.st_blocks < file.st_size]
    pattern = r'capsnet_requests_total\{method="POST",route="/classify",status="\d+"\} (\S+)'

    def counted() -> float:
        text = httpx.get(f"{client.base_url}/metrics", verify=PLAIN).text
        return sum(map(float, re.findall(pattern, text)))

    wait_for(lambda: 8 == counted())  # a request is counted after its answer
    assert 4 * [8] == [counted() for _ in range(4)]


def test_all_workers_reload_or_none(start_service: Start, bundles: Path) -> None:
    """A refused reload leaves everything as it was, routing too; the next one is taken by all."""
    _, client = start_service(**few(bundles), CAPSNET_ADMIN_KEYS=json.dumps([KEY]))
    client.headers["X-API-Key"] = KEY
    (bundles / MODEL / "routing.onnx").rename(bundles / "away")
    assert httpx.codes.CONFLICT == client.post("/models/reload").status_code
    asked = {"headers": {"X-API-Key": KEY}, "timeout": PATIENCE_S, "verify": PLAIN}
    for _ in range(4):
        for route in ("classify", "routing"):
            answer = httpx.post(
                f"{client.base_url}/{route}",
                content=SAMPLE,
                headers={"X-API-Key": KEY, "Content-Type": "image/png"},
                timeout=PATIENCE_S,
                verify=PLAIN,
            )
            assert httpx.codes.OK == answer.status_code, answer.text
    (bundles / "away").rename(bundles / MODEL / "routing.onnx")
    note = change(bundles)
    answer = client.post("/models/reload")
    assert httpx.codes.OK == answer.status_code, answer.text
    url = f"{client.base_url}/models/{MODEL}"
    for _ in range(6):
        assert note == httpx.get(url, **asked).json()["training"]["note"]


def install(bundles: Path, note: str) -> None:
    """What docs/how-to/deploy.md says: the old folder moves out, the new one in."""
    incoming, previous = bundles.parent / "incoming", bundles.parent / f"before-{note}"
    shutil.copytree(bundles / MODEL, incoming)
    manifest = json.loads((incoming / MANIFEST).read_text())
    manifest["training"]["note"] = note
    (incoming / MANIFEST).write_text(json.dumps(manifest))
    (bundles / MODEL).rename(previous)
    incoming.rename(bundles / MODEL)


def test_a_signal_reloads_all_workers_and_loses_no_request(
    start_service: Start, bundles: Path
) -> None:
    """Four callers are answered without a gap while bundles follow one another."""
    process, client = start_service(**few(bundles))
    with Callers(str(client.base_url)) as callers:
        for note in ("one", "two"):
            install(bundles, note)
            process.send_signal(signal.SIGHUP)
            wait_for(lambda note=note: notes(client) == {note})
        callers.wait()
    assert [] == callers.wrong == callers.lost
    assert not callers.refused


def test_no_kept_connection_is_closed_under_a_request(start_service: Start, bundles: Path) -> None:
    """Clients that ask again and again lose nothing from SIGTERM to the end of the grace.

    Then the port closes, and of the connections that are made in that instant one may be reset.
    """
    process, client = start_service(**few(bundles), CAPSNET_DRAIN_GRACE_S="1")
    lost: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, verify=PLAIN) as own:
            while True:
                try:
                    own.post("/classify", files={"file": SAMPLE})
                except httpx.ConnectError:  # nobody listens any more
                    return
                except httpx.TransportError:
                    lost.append(time.monotonic())
                    return

    callers = [threading.Thread(target=ask) for _ in range(16)]
    for caller in callers:
        caller.start()
    wait_for(lambda: "/classify" in httpx.get(f"{client.base_url}/metrics", verify=PLAIN).text)
    process.send_signal(signal.SIGTERM)
    end_of_grace = time.monotonic() + 1
    for caller in callers:
        caller.join(PATIENCE_S)
    assert len(lost) <= 1
    assert all(moment >= end_of_grace for moment in lost)
    assert 0 == process.wait(timeout=PATIENCE_S)


SLOW_LOG = """
import sys, time
for _ in iter(lambda: sys.stdin.buffer.read(200), b""):
    time.sleep(0.01)
"""


def test_sigterm_is_not_lost_in_a_slow_log(bundles: Path) -> None:
    """Where it lands inside a buffered write to standard error, too."""
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW_LOG], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    port = free_port()
    settings = {**few(bundles), "CAPSNET_DRAIN_GRACE_S": "0"}
    environment = {**os.environ, **settings, "CAPSNET_PORT": str(port)}
    process = subprocess.Popen(SOURCE, env=environment, stderr=slow.stdin)
    over = threading.Event()

    def ask() -> None:
        with open_client(port, timeout=1) as client:
            while not over.is_set():
                with contextlib.suppress(httpx.TransportError):
                    client.get("/models")

    callers = [threading.Thread(target=ask) for _ in range(4)]
    try:
        with open_client(port) as client:
            wait_until_ok(client, process, "/readyz")
        for caller in callers:
            caller.start()
        time.sleep(1)  # the log has filled its pipe
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(timeout=PATIENCE_S)
    finally:
        over.set()
        process.kill()
        slow.kill()
        slow.communicate()
        for caller in callers:
            if caller.ident:
                caller.join()


@pytest.mark.parametrize("on_the_loop", [False, True])
def test_a_worker_whose_inference_hangs_is_replaced(
    start_service: Start,
    bundles: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    on_the_loop: bool,  # noqa: FBT001
) -> None:
    """Whether it hangs on its own thread or on the event loop."""
    environment, stuck = hanging(tmp_path, on_the_loop=on_the_loop)
    limits = {
        "CAPSNET_HEARTBEAT_TIMEOUT_S": "2",
        "CAPSNET_INFERENCE_TIMEOUT_S": "100" if on_the_loop else "1",
        "CAPSNET_WORKERS": "1",
    }
    process, client = start_service(**{**few(bundles), **limits, **environment})
    (before,) = workers(process)
    with pytest.raises(httpx.TransportError):
        client.post("/classify", files={"file": SAMPLE}, timeout=PATIENCE_S)
    assert stuck.exists()
    wait_until_ok(client, process, "/readyz")
    assert 7 == classify(client).json()["predictions"][0]["label"]
    assert [before] != workers(process)
    reason = "its event loop has not turned for 2 s" if on_the_loop else "an inference takes longer"
    assert f"worker {before}: {reason}" in capfd.readouterr().err


def test_a_reload_reads_the_keys_anew(start_service: Start, bundles: Path, tmp_path: Path) -> None:
    """A key is replaced without a restart; a file with an unfit key changes nothing."""
    old, new, admin = "old-key-0123456789", "new-key-0123456789", "admin-key-0123456789"
    keys = tmp_path / "keys"
    keys.write_text(old)
    _, client = start_service(
        CAPSNET_BUNDLES=str(bundles),
        CAPSNET_DEFAULT_MODEL=MODEL,
        CAPSNET_DEVICE="cpu",
        CAPSNET_WORKERS="1",
        CAPSNET_API_KEYS_FILE=str(keys),
        CAPSNET_ADMIN_KEYS=json.dumps([admin]),
    )

    def reload(*lines: str) -> list[int]:
        keys.write_text("\n".join(lines))
        answers = [client.post("/models/reload", headers={"X-API-Key": admin}, timeout=60)]
        answers += [client.get("/models", headers={"X-API-Key": key}) for key in (old, new)]
        return [answer.status_code for answer in answers]

    assert [200, 200, 200] == reload(old, new)
    assert [200, 401, 200] == reload(new)
    assert [409, 401, 200] == reload(new, "short")


def test_a_broken_bundle_does_not_keep_a_key_valid(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """All workers refuse a removed key, over HTTP and after a signal; the old bundles stay."""
    old, new, last = "old-key-0123456789", "new-key-0123456789", "last-key-0123456789"
    keys = tmp_path / "keys"
    keys.write_text(f"{old}\n{new}")
    process, client = start_service(
        **few(bundles),
        CAPSNET_API_KEYS_FILE=str(keys),
        CAPSNET_ADMIN_KEYS=json.dumps([KEY]),
    )

    def statuses(key: str) -> set[int]:
        answers = (
            httpx.post(
                f"{client.base_url}/classify",
                files={"file": SAMPLE},
                headers={"X-API-Key": key},
                timeout=PATIENCE_S,
                verify=PLAIN,
            )
            for _ in range(6)
        )
        return {answer.status_code for answer in answers}

    (bundles / MODEL / "routing.onnx").unlink()
    keys.write_text(new)
    answer = client.post("/models/reload", headers={"X-API-Key": KEY}, timeout=PATIENCE_S)
    assert httpx.codes.CONFLICT == answer.status_code
    assert "routing.onnx cannot be read" in answer.json()["detail"]
    assert [{401}, {200}] == [statuses(old), statuses(new)]
    keys.write_text(last)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: 4 * [({401}, {200})] == [(statuses(new), statuses(last)) for _ in range(4)])
