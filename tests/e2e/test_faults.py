"""What callers see of real faults. `make test-slow` runs all of it, `make test` the short form."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from service.settings import Settings
from tests.e2e.callers import Callers
from tests.e2e.test_workers import (
    KEY,
    MODEL,
    Start,
    bundles,
    change,
    few,
    notes,
    wait_for,
    workers,
)
from tests.processes import (
    PATIENCE_S,
    PLAIN,
    SOURCE,
    SlowStorage,
    free_port,
    open_client,
    patch_workers,
    running,
    wait_until_ok,
)

__all__ = ["bundles"]
NOFILE = resource.RLIMIT_NOFILE


@pytest.fixture(autouse=True, scope="module")
def _source_alone(container: object) -> None:
    if container:
        pytest.skip("looks at processes of this machine")


@pytest.fixture
def start_service(settings: dict[str, str], start_service: Start) -> Start:  # noqa: ARG001
    """Set up after `settings`: its services end before their folder is removed."""
    return start_service


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory) -> SlowStorage:
    """The storage of the bundles."""
    return SlowStorage(tmp_path_factory.mktemp("patch"))


@pytest.fixture
def settings(bundles: Path, slow: SlowStorage) -> Iterator[dict[str, str]]:
    """Of two workers whose temporary files are in a folder of the test's own."""
    with tempfile.TemporaryDirectory() as folder:
        yield {**few(bundles), **slow.environment, "TMPDIR": folder}


Log = Callable[[], str]


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Log:
    """`log()` gives all that was written to standard error so far."""
    parts: list[str] = []

    def read() -> str:
        parts.append(capfd.readouterr().err)
        return "".join(parts)

    return read


class Lasting(NamedTuple):
    """A service of two workers that several tests harm, each of which leaves it whole."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    bundles: Path
    log: Path


@pytest.fixture(scope="module")
def lasting(_source_alone: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    """Its log is in a file, because it is older than a test."""
    folder = tmp_path_factory.mktemp("lasting")
    shutil.copytree(Settings().bundles / MODEL, folder / "bundles" / MODEL)
    (folder / "tmp").mkdir()
    own = {"TMPDIR": str(folder / "tmp"), "CAPSNET_ADMIN_KEYS": f'["{KEY}"]'}
    settings = {**few(folder / "bundles"), **own}
    with (
        (folder / "log").open("wb") as log,
        running(lambda _: SOURCE, settings, stderr=log) as (process, client),
    ):
        yield Lasting(process, client, folder / "bundles", folder / "log")


@pytest.fixture
def whole(lasting: Lasting) -> Lasting:
    """The same, once all its workers are ready."""
    all_ready(lasting.client)
    return lasting


@pytest.fixture
def lines(lasting: Lasting) -> Log:
    """`lines()` gives all that it has logged since the test began."""
    before = lasting.log.stat().st_size

    def read() -> str:
        return lasting.log.read_bytes()[before:].decode()

    return read


def ready_workers(client: httpx.Client) -> int:
    """How many workers the service says are ready."""
    with contextlib.suppress(httpx.TransportError):
        url = f"{client.base_url}/metrics"
        text = httpx.get(url, headers={"X-API-Key": KEY}, verify=PLAIN).text
        lines = [line for line in text.splitlines() if 'capsnet_workers{state="ready"}' in line]
        return int(float(lines[0].split()[1])) if lines else 0
    return 0


def all_ready(client: httpx.Client, wanted: int = 2) -> None:
    wait_for(lambda: ready_workers(client) == wanted)


@contextlib.contextmanager
def no_descriptors(pid: int, spare: int = 0) -> Iterator[None]:
    """Let a process open no more files than `spare`."""
    before = resource.prlimit(pid, NOFILE)
    used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = [number for number in range(max(used) + 2 + spare) if number not in used]
    resource.prlimit(pid, NOFILE, (free[spare], before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, NOFILE, before)


def test_a_stopped_worker_is_replaced(start_service: Start, settings: dict[str, str]) -> None:
    """Nobody is handed to it after 7 s, and another has started within 15."""
    process, client = start_service(**settings, CAPSNET_HEARTBEAT_TIMEOUT_S="5")
    all_ready(client)
    stopped = workers(process)[0]
    with Callers(str(client.base_url)) as callers:
        began = time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        wait_for(lambda: stopped not in workers(process) and len(workers(process)) == 2)
        assert time.monotonic() - began < 15
        wait_for(lambda: time.monotonic() - began > 7)
        callers.wait()
    all_ready(client)
    assert [] == callers.wrong
    assert not callers.refused
    assert all(sent < began + 7 for sent in callers.lost)
    assert len(callers.lost) <= callers.callers


def test_a_killed_worker_loses_what_it_computes(whole: Lasting) -> None:
    """And nothing else: at most one request of each caller."""
    process, client, *_ = whole
    with Callers(str(client.base_url)) as callers:
        os.kill(killed := workers(process)[0], signal.SIGKILL)
        wait_for(lambda: killed not in workers(process) and len(workers(process)) == 2)
        callers.wait()
        all_ready(client)
    assert [] == callers.wrong
    assert not callers.refused
    assert len(callers.lost) <= callers.callers


def test_a_process_that_cannot_be_started_is_tried_again(
    start_service: Start, settings: dict[str, str], log: Log
) -> None:
    """The other worker answers meanwhile."""
    process, client = start_service(**settings)
    all_ready(client)
    with no_descriptors(process.pid):
        os.kill(workers(process)[0], signal.SIGKILL)
        wait_for(lambda: log().count("a process cannot be started: ") >= 2)
        with Callers(str(client.base_url)) as callers:
            callers.wait()
    all_ready(client)
    assert [] == callers.wrong == callers.lost
    assert process.poll() is None


@pytest.mark.parametrize("spare", [0, 1])
def test_a_worker_without_descriptors_leaves_connections_to_the_other(
    whole: Lasting, lines: Log, spare: int
) -> None:
    """And takes them again when there are some."""
    process, client, *_ = whole
    before = workers(process)
    with no_descriptors(before[0], spare), Callers(str(client.base_url)) as callers:
        wait_for(lambda: "no connection accepted: " in lines())
        callers.wait()
    assert [] == callers.wrong == callers.lost
    assert callers.refused.keys() <= {503}  # it cannot start a process that decodes
    assert before == workers(process)


def test_workers_accept_again_within_two_seconds_of_a_free_descriptor(
    whole: Lasting, lines: Log
) -> None:
    """All workers are affected, so that no other one answers in place of them."""
    process, client, *_ = whole
    address = (str(client.base_url.host), int(client.base_url.port or 0))
    with contextlib.ExitStack() as stack:
        for worker in workers(process):
            stack.enter_context(no_descriptors(worker))
        waiting = [socket.create_connection(address) for _ in range(8)]
        wait_for(lambda: lines().count("no connection accepted: ") >= 2)
    for connection in waiting:
        connection.close()
    answer = httpx.get(f"{client.base_url}/livez", timeout=2, verify=PLAIN)
    assert httpx.codes.OK == answer.status_code


def test_a_crash_beside_a_broken_bundle_ends_nothing_healthy(
    start_service: Start, settings: dict[str, str], bundles: Path
) -> None:
    """The replacement loads the copy that the others serve."""
    process, client = start_service(**settings)
    all_ready(client)
    (bundles / MODEL / "encoder.onnx").unlink()
    with Callers(str(client.base_url), callers=2) as callers:
        os.kill(killed := workers(process)[0], signal.SIGKILL)
        wait_for(lambda: killed not in workers(process))
        all_ready(client)
        callers.wait()
    assert [] == callers.wrong
    assert len(callers.lost) <= callers.callers


@pytest.mark.parametrize("killed", [1, 2])
def test_replacements_serve_what_was_served_until_a_reload(
    start_service: Start, settings: dict[str, str], bundles: Path, killed: int
) -> None:
    """Whatever is on disk by then: all that answer answer alike."""
    process, client = start_service(**settings)
    all_ready(client)
    note = change(bundles)
    before = workers(process)[:killed]
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not set(before) & set(workers(process)))
    all_ready(client)
    assert {None} == notes(client)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: notes(client) == {note})


def test_a_reload_under_32_connections_loses_no_answer(whole: Lasting) -> None:
    """When it is done, all workers answer with the new bundles."""
    client = whole.client
    with Callers(str(client.base_url), callers=32) as callers:
        note = change(whole.bundles)
        answer = client.post("/models/reload", headers={"X-API-Key": KEY})
        assert httpx.codes.OK == answer.status_code, answer.text
        assert {note} == notes(client, asked=12)
        callers.wait()
    assert [] == callers.wrong == callers.lost
    assert not callers.refused


def test_a_reload_that_fails_as_nobody_foresaw_is_logged_and_the_next_succeeds(
    start_service: Start, settings: dict[str, str], bundles: Path, tmp_path: Path, log: Log
) -> None:
    """Workers go on following what is current."""
    broken = tmp_path / "broken"
    patch = patch_workers(
        tmp_path,
        f"""
        from service.processes.snapshots import Snapshots
        plain = Snapshots.take

        def take(*arguments, **more):
            if pathlib.Path({str(broken)!r}).exists():
                raise RuntimeError("can't start new thread")
            return plain(*arguments, **more)

        Snapshots.take = take
        """,
    )
    process, client = start_service(**{**settings, **patch})
    all_ready(client)
    broken.touch()
    for _ in workers(process):
        process.send_signal(signal.SIGHUP)
        time.sleep(1.5)
    wait_for(lambda: "can't start new thread" in log())
    broken.unlink()
    note = change(bundles)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: notes(client) == {note})


def readers(settings: dict[str, str]) -> list[int]:
    """The workers that copy a bundle, or wait until they may."""
    folder = Path(settings["TMPDIR"])
    if not list(folder.glob(f"capsnet-*/copy-*/bundles/{MODEL}")):
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed
            if path.readlink().match(f"{folder}/*/lock"):
                found.append(int(path.parts[2]))
    return found


def test_a_worker_killed_during_a_reload_does_not_stop_it(
    start_service: Start, settings: dict[str, str], bundles: Path, slow: SlowStorage
) -> None:
    """Its replacement loads what the others do."""
    process, client = start_service(**settings)
    all_ready(client)
    note = change(bundles)
    slow.hold()
    with Callers(str(client.base_url)) as callers:
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: readers(settings))
        (other,) = set(workers(process)) - set(readers(settings))
        os.kill(other, signal.SIGKILL)
        slow.release_one()
        wait_for(lambda: notes(client) == {note})
        callers.wait()
    all_ready(client)
    assert [] == callers.wrong
    assert len(callers.lost) <= callers.callers


def test_a_reload_whose_worker_is_killed_changes_nothing(
    start_service: Start, settings: dict[str, str], bundles: Path, slow: SlowStorage
) -> None:
    """And the next one may do better."""
    process, client = start_service(**settings)
    all_ready(client)
    note = change(bundles)
    slow.hold()
    with Callers(str(client.base_url)) as callers:
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
        callers.wait()
    assert [] == callers.wrong
    assert len(callers.lost) <= callers.callers


def test_a_frozen_service_goes_on(start_service: Start, settings: dict[str, str]) -> None:
    """A machine that was asleep is no reason to end a worker, though all were silent for long."""
    process, client = start_service(**settings, CAPSNET_HEARTBEAT_TIMEOUT_S="2")
    all_ready(client)
    before = workers(process)
    for pid in [process.pid, *before]:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in [process.pid, *before]:
        os.kill(pid, signal.SIGCONT)
    with Callers(str(client.base_url)) as callers:
        callers.wait(200)
    assert before == workers(process)
    assert [] == callers.wrong == callers.lost


# SIGTERM


@contextlib.contextmanager
def starting(settings: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """A service that has just been started; it has to leave nothing behind."""
    port = free_port()
    own = {"CAPSNET_PORT": str(port), "CAPSNET_DRAIN_GRACE_S": "0"}
    process = subprocess.Popen(SOURCE, env={**os.environ, **settings, **own})
    try:
        with open_client(port) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()


def ends_clean(process: subprocess.Popen[bytes], settings: dict[str, str]) -> int:
    """The code with which it ends, its processes and files gone."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = path.read_text().split() if path.exists() else []
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=PATIENCE_S)
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
    assert [] == list(Path(settings["TMPDIR"]).glob("capsnet-*"))
    return code


def each_moment(*short: float) -> pytest.MarkDecorator:
    """Of six seconds; those of the short form, and the others for `make test-slow`."""
    others = [moment for step in range(60) if (moment := step / 10) not in short]
    late = [pytest.param(one, marks=pytest.mark.faults) for one in others]
    return pytest.mark.parametrize("delay_s", [*short, *late])


@each_moment(0.3, 1.5)
def test_sigterm_ends_a_start(settings: dict[str, str], delay_s: float) -> None:
    """At every moment but that before Python runs a line of ours."""
    with starting(settings) as (process, _):
        time.sleep(delay_s)
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        expected = 0 if caught >> (signal.SIGTERM - 1) & 1 else -signal.SIGTERM
        assert expected == ends_clean(process, settings)


@each_moment(0.3)
def test_sigterm_ends_a_reload(settings: dict[str, str], delay_s: float) -> None:
    """At every moment of it."""
    with starting(settings) as (process, client):
        wait_until_ok(client, process, "/readyz")
        process.send_signal(signal.SIGHUP)
        time.sleep(delay_s)
        assert 0 == ends_clean(process, settings)


def test_sigterm_during_a_reload_leaves_the_service_unready(
    start_service: Start, settings: dict[str, str], slow: SlowStorage
) -> None:
    """Until a second one ends it."""
    process, client = start_service(**{**settings, "CAPSNET_DRAIN_GRACE_S": "60"})
    all_ready(client)
    slow.hold()
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: readers(settings))
    process.send_signal(signal.SIGTERM)
    readyz = f"{client.base_url}/readyz"
    wait_for(lambda: {httpx.get(readyz, verify=PLAIN).status_code for _ in range(20)} == {503})
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=PATIENCE_S)


def test_sigterm_drops_a_reload_that_waits_for_another(
    settings: dict[str, str], log: Log, slow: SlowStorage
) -> None:
    """Nothing starts any more."""
    with starting(settings) as (process, client):
        all_ready(client)
        slow.hold()
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: readers(settings))
        process.send_signal(signal.SIGHUP)
        assert 0 == ends_clean(process, settings)
    assert "Traceback" not in log()


def test_sigterm_ends_a_back_off(settings: dict[str, str], log: Log) -> None:
    """The code is 0: the failure is past."""
    with starting(settings) as (process, client):
        all_ready(client)
        seen = ""
        while "another starts in 1.6 s" not in (seen := seen + log()):
            for worker in workers(process):
                os.kill(worker, signal.SIGKILL)
        assert 0 == ends_clean(process, settings)


def test_a_hangup_during_the_start_is_a_reload_after_it(
    settings: dict[str, str], slow: SlowStorage
) -> None:
    """It is not forgotten."""
    slow.hold()
    with starting(settings) as (process, client):
        wait_for(lambda: readers(settings))
        process.send_signal(signal.SIGHUP)
        slow.release_one()
        all_ready(client)
        wait_for(lambda: readers(settings))
        slow.release()
        assert 0 == ends_clean(process, settings)


def test_a_killed_supervisor_leaves_nothing(settings: dict[str, str]) -> None:
    """Its workers finish what they accepted, end, and remove its folder."""
    with starting(settings) as (process, client):
        all_ready(client)
        pids = workers(process)
        process.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
        assert [] == list(Path(settings["TMPDIR"]).glob("capsnet-*"))
