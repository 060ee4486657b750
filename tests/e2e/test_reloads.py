"""Reloads of a service, also of bundles that are made to harm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from model import SHIPPED
from tests.attack import bundles as hostile
from tests.attack.wire import SEVEN
from tests.e2e.workers import KEY, MODEL, all_ready, change, few, notes, wait_for, workers
from tests.processes import PATIENCE_S, PLAIN, SlowStorage, descendants, patch_workers

Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
WAYS = ("double-functions", "take-memory", "nest-metrics", "corrupt-novelty")
"""Hostile bundles that are refused in different ways: time, memory, an error in either process."""
ALONE = {"CAPSNET_WORKERS": "1"}
"""Where nothing depends on how many workers there are."""
OLD, NEW, LAST = "old-key-0123456789", "new-key-0123456789", "last-key-0123456789"
pytestmark = pytest.mark.usefixtures("source_alone")


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    """A folder with one shipped bundle that the test may change."""
    shutil.copytree(SHIPPED / MODEL, tmp_path / "bundles" / MODEL)
    return tmp_path / "bundles"


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory) -> SlowStorage:
    """The storage of the bundles."""
    return SlowStorage(tmp_path_factory.mktemp("patch"))


@pytest.fixture
def settings(bundles: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of two workers whose temporary files are in a folder of the test's own."""
    own = {"CAPSNET_ADMIN_KEYS": json.dumps([KEY]), **give_seconds(tmp_path, 2)}
    with tempfile.TemporaryDirectory() as folder:
        yield {**few(bundles), **own, "TMPDIR": folder}


def give_seconds(folder: Path, seconds: int) -> dict[str, str]:
    """Settings of workers that give a bundle so much CPU time."""
    source = f"from service.processes import candidates; candidates.TIMEOUT_S = {seconds}"
    return patch_workers(folder, source)


@pytest.fixture
def start_service(settings: dict[str, str], start_service: Start) -> Start:  # noqa: ARG001
    """Set up after `settings`: its services end before their folder is removed."""
    return start_service


def reload(client: httpx.Client) -> httpx.Response:
    """Ask for a reload, as an administrator."""
    url, headers = f"{client.base_url}/models/reload", {"X-API-Key": KEY}
    return httpx.post(url, headers=headers, timeout=PATIENCE_S, verify=PLAIN)


def answers(
    client: httpx.Client, path: str, *, key: str = "", times: int = 6
) -> list[httpx.Response]:
    """To a picture, over a connection each, so that workers take turns."""
    ask = partial(httpx.post, headers={"X-API-Key": key}, timeout=PATIENCE_S, verify=PLAIN)
    url = f"{client.base_url}/{path}"
    return [ask(url, files={"file": SEVEN}) for _ in range(times)]


def statuses(client: httpx.Client, path: str, key: str = "") -> set[int]:
    """Of all workers."""
    return {answer.status_code for answer in answers(client, path, key=key)}


def readers(settings: dict[str, str]) -> list[int]:
    """The workers that copy a bundle, or wait until they may."""
    folder = Path(settings["TMPDIR"])
    if not list(folder.glob(f"capsnet-*/copy-*/{MODEL}")):
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it was closed
            if path.readlink().match(f"{folder}/*/lock"):
                found.append(int(path.parts[2]))
    return found


def test_all_workers_reload_or_none(
    start_service: Start, settings: dict[str, str], bundles: Path
) -> None:
    """A refused reload leaves everything as it was, routing too; the next one is taken by all."""
    _, client = start_service(**settings)
    all_ready(client)
    (bundles / MODEL / "routing.onnx").rename(bundles / "away")
    assert httpx.codes.CONFLICT == reload(client).status_code
    assert [{200}, {200}] == [statuses(client, route) for route in ("classify", "routing")]
    (bundles / "away").rename(bundles / MODEL / "routing.onnx")
    note = change(bundles)
    assert httpx.codes.OK == reload(client).status_code
    assert {note} == notes(client)


def test_replacements_serve_what_was_served_until_a_reload(
    start_service: Start, settings: dict[str, str], bundles: Path
) -> None:
    """Whatever is on disk by then: all that answer answer alike."""
    process, client = start_service(**settings)
    all_ready(client)
    note = change(bundles)
    before = workers(process)
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not set(before) & set(workers(process)))
    all_ready(client)
    assert {None} == notes(client)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: notes(client) == {note})


def test_a_reload_whose_worker_is_killed_changes_nothing(
    start_service: Start, settings: dict[str, str], bundles: Path, slow: SlowStorage
) -> None:
    """And the next one may do better."""
    process, client = start_service(**{**settings, **slow.environment})
    all_ready(client)
    note = change(bundles)
    slow.hold()
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: readers(settings))
    (killed,) = readers(settings)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: killed not in workers(process))
    all_ready(client)
    assert {None} == notes(client)
    slow.release()
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: notes(client) == {note})


def test_a_reload_reads_the_keys_anew(
    start_service: Start, settings: dict[str, str], bundles: Path, tmp_path: Path
) -> None:
    """Also beside a broken bundle and after a signal; a file with an unfit key changes nothing."""
    keys = tmp_path / "keys"
    keys.write_text(f"{OLD}\n{NEW}")
    process, client = start_service(**settings, CAPSNET_API_KEYS_FILE=str(keys))

    def valid() -> list[set[int]]:
        return [statuses(client, "classify", key) for key in (OLD, NEW, LAST)]

    assert [{200}, {200}, {401}] == valid()
    keys.write_text(NEW)
    assert httpx.codes.OK == reload(client).status_code
    assert [{401}, {200}, {401}] == valid()
    keys.write_text(f"{LAST}\nshort")
    assert httpx.codes.CONFLICT == reload(client).status_code
    assert [{401}, {200}, {401}] == valid()
    (bundles / MODEL / "routing.onnx").unlink()
    keys.write_text(LAST)
    answer = reload(client)
    assert httpx.codes.CONFLICT == answer.status_code
    assert "routing.onnx cannot be read" in answer.json()["detail"]
    assert [{401}, {401}, {200}] == valid()
    keys.write_text(OLD)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: valid() == [{200}, {401}, {401}])


def test_metrics_take_their_room_at_the_start(
    start_service: Start, settings: dict[str, str]
) -> None:
    """A hole in a mapped file would end a process; any worker tells the metrics of all."""
    _, client = start_service(**settings)
    answers(client, "classify", times=8)
    files = [path.stat() for path in Path(settings["TMPDIR"]).glob("capsnet-*/*.db")]
    assert files
    assert [] == [file for file in files if 512 * file.st_blocks < file.st_size]
    pattern = r'capsnet_requests_total\{method="POST",route="/classify",status="\d+"\} (\S+)'

    def counted() -> float:
        headers = {"X-API-Key": KEY}
        text = httpx.get(f"{client.base_url}/metrics", headers=headers, verify=PLAIN).text
        return sum(map(float, re.findall(pattern, text)))

    wait_for(lambda: 8 == counted())  # a request is counted after its answer
    assert 4 * [8] == [counted() for _ in range(4)]


# hostile bundles


def install(bundles: Path, harm: hostile.Change) -> None:
    """Add a bundle called evil, which was changed."""
    shutil.rmtree(bundles / "evil", ignore_errors=True)
    shutil.copytree(SHIPPED / MODEL, bundles / "evil")
    hostile.sign(bundles / "evil", name="evil")
    harm(bundles / "evil")


def copies(settings: dict[str, str]) -> list[str]:
    """The names of what the service keeps of bundles."""
    (service,) = Path(settings["TMPDIR"]).glob("capsnet-*")
    return sorted(path.name for path in service.glob("copy-*"))


def test_a_reload_refuses_hostile_bundles_and_nothing_else_happens(
    start_service: Start, settings: dict[str, str], bundles: Path
) -> None:
    """Each is a 409 that names it; no worker ends, and no copy stays."""
    process, client = start_service(**{**settings, **ALONE})
    before, kept = workers(process), copies(settings)
    wrong = {}
    for name, harm in hostile.HOSTILE.items():
        install(bundles, harm)
        answer = reload(client)
        told = answer.json()
        right = (
            answer.status_code == httpx.codes.CONFLICT
            and told["type"] == "urn:capsnet:problem:bundle-refused"
            and str(bundles / "evil") in told["detail"]
        )
        if not (right and kept == copies(settings)):
            wrong[name] = (answer.text, copies(settings))
    assert {} == wrong
    assert before == workers(process)
    shutil.rmtree(bundles / "evil")
    assert httpx.codes.OK == reload(client).status_code


def test_a_start_skips_hostile_bundles(
    start_service: Start,
    settings: dict[str, str],
    bundles: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The log names each, and the others are served by workers that were never replaced."""
    for name in WAYS:
        install(bundles, hostile.HOSTILE[name])
        (bundles / "evil").rename(bundles / f"evil-{name}")
    process, client = start_service(**{**settings, **ALONE})
    models = httpx.get(f"{client.base_url}/models", verify=PLAIN).json()["models"]
    assert [MODEL] == [model["name"] for model in models]
    assert 1 == len(workers(process))
    log: list[str] = []

    def names_each() -> bool:
        """Whether the log names each by now: a thread writes it."""
        log.append(capfd.readouterr().err)
        return all(f"skipped: {bundles}/evil-{name}" in "".join(log) for name in WAYS)

    wait_for(names_each)
    assert "another starts" not in "".join(log)


def test_a_removed_key_is_refused_while_a_hostile_bundle_is_opened(
    start_service: Start, settings: dict[str, str], bundles: Path, tmp_path: Path
) -> None:
    """The revocation waits neither for the bundle nor for the reload that opens it.

    The process that opens it has no key of the service.
    """
    (keys := tmp_path / "keys").write_text(f"{OLD}\n{NEW}\n")
    own = {**ALONE, "CAPSNET_API_KEYS_FILE": str(keys), **give_seconds(tmp_path, PATIENCE_S)}
    process, client = start_service(**{**settings, **own})
    install(bundles, hostile.double_functions)
    process.send_signal(signal.SIGHUP)
    seen: dict[str, str] = {}

    def look() -> bool:
        for folder in (Path("/proc", str(pid)) for pid in descendants(process.pid)):
            with suppress(OSError):
                if b"service.processes.candidates" in (folder / "cmdline").read_bytes():
                    seen["environment"] = (folder / "environ").read_text()
                    opened = (file.readlink() for file in (folder / "fd").iterdir())
                    seen["files"] = " ".join(map(str, opened))
        return "files" in seen  # the process may end in between

    wait_for(look)
    assert "CAPSNET_" not in seen["environment"]
    assert seen["files"].count("socket") <= 1  # to the worker that asked
    keys.write_text(f"{NEW}\n")
    answer = reload(client)
    assert "urn:capsnet:problem:reload-under-way" == answer.json()["type"]
    assert int(answer.headers["Retry-After"]) > 0
    assert [{401}, {200}] == [statuses(client, "classify", key) for key in (OLD, NEW)]
    assert "urn:capsnet:problem:reload-under-way" == reload(client).json()["type"]


def test_the_bundle_in_the_folder_of_its_own_name_is_served(
    start_service: Start, settings: dict[str, str], bundles: Path
) -> None:
    """An impostor is skipped at a start, and refused by a reload, wherever it is in the order."""
    for name in ("a-first", "z-last"):
        shutil.copytree(SHIPPED / MODEL, bundles / name)
        hostile.sign(bundles / name, dataset="evil")
    _, client = start_service(**{**settings, **ALONE})
    url = f"{client.base_url}/models/{MODEL}"
    assert "mnist" == httpx.get(url, verify=PLAIN).json()["dataset"]
    shutil.copytree(bundles / "a-first", bundles / "b-second")
    answer = reload(client)
    assert httpx.codes.CONFLICT == answer.status_code
    assert "its name is already taken" in answer.json()["detail"]
