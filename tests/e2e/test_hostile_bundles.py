"""Bundles that are made to harm, in the folder of a service with two workers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from model import SHIPPED
from tests.attack import bundles as hostile
from tests.e2e.test_workers import few, wait_for, workers
from tests.processes import PATIENCE_S, PLAIN

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
MODEL = "mnist-compact"
WAYS = ("double-functions", "take-memory", "nest-metrics", "corrupt-novelty")
"""Hostile bundles that are refused in different ways: time, memory, an error in either process."""
ADMIN, KEY, REMOVED = "an-admin-key-of-tests", "a-key-of-tests-alone", "a-key-that-is-removed"
pytestmark = pytest.mark.usefixtures("source_alone")


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    """A folder with one shipped bundle that the test may change."""
    shutil.copytree(SHIPPED / MODEL, tmp_path / "bundles" / MODEL)
    return tmp_path / "bundles"


def settings(bundles: Path, folder: Path) -> dict[str, str]:
    """Settings of two workers that give a bundle four seconds, and keep their files in a folder."""
    (folder / "tmp").mkdir()
    keys = {"CAPSNET_ADMIN_KEYS": json.dumps([ADMIN]), "CAPSNET_BUNDLE_TIMEOUT_S": "4"}
    return {**few(bundles), **keys, "TMPDIR": str(folder / "tmp")}


def reload(client: httpx.Client) -> httpx.Response:
    """Ask for a reload, as an administrator."""
    url, headers = f"{client.base_url}/models/reload", {"X-API-Key": ADMIN}
    return httpx.post(url, headers=headers, timeout=PATIENCE_S, verify=PLAIN)


def install(bundles: Path, change: hostile.Change) -> None:
    """Add a bundle called evil, which was changed."""
    shutil.rmtree(bundles / "evil", ignore_errors=True)
    shutil.copytree(SHIPPED / MODEL, bundles / "evil")
    hostile.sign(bundles / "evil", name="evil")
    change(bundles / "evil")


def copies(folder: Path) -> list[str]:
    """The names of what the service keeps of bundles."""
    (service,) = (folder / "tmp").glob("capsnet-*")
    kept = [*(service / "snapshots").iterdir(), *service.glob("copy-*")]
    return sorted(path.name for path in kept)


def test_a_reload_refuses_hostile_bundles_and_nothing_else_happens(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """Each is a 409 that names it; no worker ends, and no copy stays."""
    process, client = start_service(**settings(bundles, tmp_path))
    before, kept = workers(process), copies(tmp_path)
    wrong = {}
    for name, change in hostile.HOSTILE.items():
        install(bundles, change)
        answer = reload(client)
        body = answer.json()
        right = (
            answer.status_code == httpx.codes.CONFLICT
            and body["type"] == "urn:capsnet:problem:bundle-refused"
            and str(bundles / "evil") in body["detail"]
        )
        if not (right and kept == copies(tmp_path)):
            wrong[name] = (answer.text, copies(tmp_path))
    assert {} == wrong
    assert before == workers(process)
    shutil.rmtree(bundles / "evil")
    assert httpx.codes.OK == reload(client).status_code


def test_a_start_skips_hostile_bundles(
    start_service: Start, bundles: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log names each, and the others are served by workers that were never replaced."""
    for name in WAYS:
        install(bundles, hostile.HOSTILE[name])
        (bundles / "evil").rename(bundles / f"evil-{name}")
    process, client = start_service(**settings(bundles, tmp_path))
    models = httpx.get(f"{client.base_url}/models", verify=PLAIN).json()["models"]
    assert [MODEL] == [model["name"] for model in models]
    assert 2 == len(workers(process))
    log = capfd.readouterr().err
    skipped = [name for name in WAYS if f"skipped: {bundles}/evil-{name}" in log]
    assert list(WAYS) == skipped
    assert "another starts" not in log


def test_a_removed_key_is_refused_while_a_hostile_bundle_is_opened(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """The revocation waits neither for the bundle nor for the reload that opens it."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n{REMOVED}\n")
    own = {"CAPSNET_API_KEYS_FILE": str(keys), "CAPSNET_BUNDLE_TIMEOUT_S": "40"}
    process, client = start_service(**{**settings(bundles, tmp_path), **own})

    def is_valid(key: str) -> bool:
        url, headers = f"{client.base_url}/models", {"X-API-Key": key}
        return httpx.get(url, headers=headers, verify=PLAIN).is_success

    install(bundles, hostile.double_functions)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: any((tmp_path / "tmp").glob("capsnet-*/copy-*/bundles/evil/samples")))
    keys.write_text(f"{KEY}\n")
    began = time.monotonic()
    answer = reload(client)
    assert "urn:capsnet:problem:reload-under-way" == answer.json()["type"]
    assert int(answer.headers["Retry-After"]) > 0
    assert [] == [number for number in range(10) if is_valid(REMOVED)]
    assert is_valid(KEY)
    assert time.monotonic() - began < 20


def test_the_bundle_in_the_folder_of_its_own_name_is_served(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """An impostor is skipped at a start, and refused by a reload, wherever it is in the order."""
    for name in ("a-first", "z-last"):
        shutil.copytree(SHIPPED / MODEL, bundles / name)
        hostile.sign(bundles / name, dataset="evil")
    _, client = start_service(**settings(bundles, tmp_path))
    url = f"{client.base_url}/models/{MODEL}"
    answers = [httpx.get(url, verify=PLAIN).json() for _ in range(6)]
    assert {"mnist"} == {answer["dataset"] for answer in answers}
    shutil.copytree(bundles / "a-first", bundles / "b-second")
    answer = reload(client)
    assert httpx.codes.CONFLICT == answer.status_code
    assert "its name is already taken" in answer.json()["detail"]


def test_what_a_candidate_does_is_seen_by_nobody(
    start_service: Start, bundles: Path, tmp_path: Path
) -> None:
    """Its process has no key of the service, and no file but its own."""
    process, _ = start_service(**settings(bundles, tmp_path))
    install(bundles, hostile.double_functions)
    seen: dict[str, str] = {}

    process.send_signal(signal.SIGHUP)

    def look() -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"service.processes.candidates" in path.read_bytes():
                    seen["environment"] = (path.parent / "environ").read_text()
                    seen["files"] = " ".join(
                        str(file.readlink()) for file in (path.parent / "fd").iterdir()
                    )
            except OSError:
                continue
        return bool(seen.get("environment"))

    wait_for(look)
    assert ADMIN not in seen["environment"]
    assert "CAPSNET_" not in seen["environment"]
    assert "socket" not in seen["files"]
