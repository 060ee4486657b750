from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from model.bundle import MANIFEST
from service.pictures import SAMPLES
from service.settings import Settings

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
MODEL = "mnist-compact"


@pytest.fixture
def bundles(tmp_path: Path, container: object) -> Path:
    """A folder with one shipped bundle that the test may change."""
    if container:
        pytest.skip("a container does not see this folder")
    shutil.copytree(Settings().bundles / MODEL, tmp_path / "bundles" / MODEL)
    return tmp_path / "bundles"


def install(bundles: Path, version: str) -> None:
    """What docs/how-to/deploy.md says: the old folder moves out, the new one in."""
    incoming, previous = bundles.parent / "incoming", bundles.parent / f"before-{version}"
    shutil.copytree(bundles / MODEL, incoming)
    manifest = json.loads((incoming / MANIFEST).read_text())
    manifest["training"]["version"] = version
    (incoming / MANIFEST).write_text(json.dumps(manifest))
    (bundles / MODEL).rename(previous)
    incoming.rename(bundles / MODEL)


def test_a_signal_exchanges_bundles_and_loses_no_request(
    start_service: Start, bundles: Path
) -> None:
    """Four callers are answered without a gap while three versions follow one another."""
    process, client = start_service(
        CAPSNET_BUNDLES=str(bundles), CAPSNET_DEFAULT_MODEL=MODEL, CAPSNET_DEVICE="cpu"
    )
    over = threading.Event()
    statuses: list[int] = []
    picture = (SAMPLES / "4.png").read_bytes()

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            while not over.is_set():
                answer = own.post("/reconstruct", files={"file": picture})
                statuses.append(answer.status_code)

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for version in ("one", "two", "three"):
            install(bundles, version)
            process.send_signal(signal.SIGHUP)
            while client.get(f"/models/{MODEL}").json()["training"].get("version") != version:
                assert process.poll() is None
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert {200} == set(statuses)
