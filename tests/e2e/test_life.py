"""How a service starts, ends and replaces its workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from tritonclient.grpc import service_pb2

from model.bundle import MANIFEST
from service.api.v2.grpc import SERVICE
from service.api.v2.tensors import LENGTH
from service.settings import Settings
from tests.attack.wire import SEVEN
from tests.e2e.conftest import QUICK
from tests.e2e.workers import KEY, MODEL, few, wait_for, workers
from tests.processes import (
    PATIENCE_S,
    PLAIN,
    SOURCE,
    SlowStorage,
    free_port,
    hanging,
    open_client,
    patch_workers,
    running,
    wait_until_ok,
)

ROOT = Path(__file__).parents[2]
Start = Callable[..., tuple[subprocess.Popen[bytes], httpx.Client]]
source_alone = pytest.mark.usefixtures("source_alone")


def infer(channel: grpc.Channel) -> str:
    """The model that answers over gRPC."""
    infer_request = service_pb2.ModelInferRequest
    image = infer_request.InferInputTensor(name="image", datatype="BYTES", shape=[1])
    call = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=infer_request.SerializeToString,
        response_deserializer=service_pb2.ModelInferResponse.FromString,
    )
    request = infer_request(
        model_name=MODEL,
        inputs=[image],
        raw_input_contents=[LENGTH.pack(len(SEVEN)) + SEVEN],
    )
    name: str = call(request, timeout=PATIENCE_S).model_name
    return name


def label(client: httpx.Client) -> int:
    """Of a 7."""
    answer = client.post("/classify", files={"file": SEVEN})
    found: int = answer.json()["predictions"][0]["label"]
    return found


# start


def test_uvicorn_alone_serves_the_app(container: object) -> None:
    """It loads in its lifespan and needs no supervisor."""
    if container:
        pytest.skip("starts the source")

    def command(settings: dict[str, str]) -> list[str]:
        uvicorn = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
        return [*uvicorn, "--port", settings["CAPSNET_PORT"]]

    with running(command, {**QUICK, "CAPSNET_DEVICE": "cpu"}) as (process, client):
        assert 7 == label(client)
    assert process.returncode in (0, -signal.SIGTERM)


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


def test_the_port_is_open_while_bundles_load(
    start_service: Start, slow: SlowStorage, tmp_path: Path
) -> None:
    """The process is alive, shows samples and says that it is not ready; on SIGTERM, it ends."""
    process, client = start_service(
        probe="/livez", CAPSNET_BUNDLES=str(tmp_path / "bundles"), **slow.environment
    )
    assert httpx.codes.SERVICE_UNAVAILABLE == client.get("/readyz").status_code
    assert httpx.codes.OK == client.get("/samples/7.png").status_code
    answer = client.post("/classify", files={"file": SEVEN})
    assert httpx.codes.SERVICE_UNAVAILABLE == answer.status_code
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)


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


@source_alone
def test_a_port_of_grpc_is_for_one_service_and_every_address_of_its_host(
    start_service: Start,
    run_service: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """A second service is refused: calls would be answered by the one or the other.

    A host may have an address of IPv6 too.
    """
    port = free_port()
    start_service(CAPSNET_GRPC_PORT=str(port), CAPSNET_HOST="localhost")
    result = run_service(**QUICK, CAPSNET_GRPC_PORT=str(port))
    assert 1 == result.returncode
    assert f"cannot listen on 127.0.0.1:{port} for gRPC" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    known = {found[4][0] for found in socket.getaddrinfo("localhost", 80)}
    for address, written in {"127.0.0.1": "127.0.0.1", "::1": "[::1]"}.items():
        if address in known:
            with grpc.insecure_channel(f"{written}:{port}") as channel:
                assert MODEL == infer(channel)


# end


def test_sigterm_drains_and_ends_with_zero(start_service: Start) -> None:
    """Unready at once, still answering during the grace, then gone with code 0."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="1")
    process.send_signal(signal.SIGTERM)
    statuses = []
    with contextlib.suppress(httpx.TransportError):
        while True:
            statuses.append(client.get("/readyz").status_code)
            if statuses[-1] == httpx.codes.SERVICE_UNAVAILABLE:
                assert 7 == label(client)
    assert httpx.codes.SERVICE_UNAVAILABLE == statuses[-1]
    assert 0 == process.wait(timeout=60)


def test_second_sigterm_cuts_the_grace_short(start_service: Start) -> None:
    """The process ends at once; the code is still 0."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="60")
    process.send_signal(signal.SIGTERM)
    while client.get("/readyz").status_code == httpx.codes.OK:
        pass
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)


def test_request_under_way_at_sigterm_is_answered(start_service: Start) -> None:
    """A request whose body is still arriving when SIGTERM comes gets its answer."""
    process, client = start_service(CAPSNET_DRAIN_GRACE_S="0")

    def body() -> Iterator[bytes]:
        yield SEVEN[:100]
        process.send_signal(signal.SIGTERM)
        while client_of_another_connection_is_answered(str(client.base_url)):
            pass
        yield SEVEN[100:]

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
    headers = {"X-Request-Timeout": "0.2"}
    while not stuck.exists():
        answer = client.post("/classify", files={"file": SEVEN}, headers=headers)
        assert httpx.codes.GATEWAY_TIMEOUT == answer.status_code
    process.send_signal(signal.SIGTERM)
    assert 1 == process.wait(timeout=60)
    assert "the last inference did not end within 3 s" in capfd.readouterr().err


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
    assert 0 == process.wait(timeout=PATIENCE_S)


@source_alone
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_killing_make_serve_ends_the_service(sig: signal.Signals, tmp_path: Path) -> None:
    """No process of it stays on the port. Ctrl-C reaches all of them, SIGTERM make alone."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    port, own = free_port(), f"{tmp_path}/.serve"
    ready_made = ["-o", own, "-o", "site/index.html"]
    process = subprocess.Popen(
        [make, "serve", f"VENV={tmp_path}", f"PORT={port}", *ready_made],
        cwd=ROOT,
        env={**os.environ, **QUICK, "CAPSNET_DRAIN_GRACE_S": "0"},
        start_new_session=True,
    )
    with open_client(port) as client:
        wait_until_ok(client, process, "/readyz")
        if sig == signal.SIGINT:  # as a terminal sends it; make passes on SIGTERM only
            os.killpg(process.pid, sig)
        else:
            process.send_signal(sig)
        process.wait(timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                client.get("/livez")
            except httpx.TransportError:
                return
            assert time.monotonic() < deadline, "the service is still there"
            time.sleep(0.1)


@source_alone
def test_no_kept_connection_is_closed_under_a_request(start_service: Start) -> None:
    """Clients that ask again and again lose nothing from SIGTERM to the end of the grace.

    Then the port closes, and of the connections that are made in that instant one may be reset.
    """
    process, client = start_service(CAPSNET_WORKERS="2", CAPSNET_DRAIN_GRACE_S="1")
    lost: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, verify=PLAIN) as own:
            while True:
                try:
                    own.post("/classify", files={"file": SEVEN})
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


@pytest.fixture
def settings(container: object) -> Iterator[dict[str, str]]:
    """Of two workers whose temporary files are in a folder of the test's own."""
    if container:
        pytest.skip("looks at processes of this machine")
    keys = {"CAPSNET_ADMIN_KEYS": f'["{KEY}"]', "CAPSNET_MODELS": f'["{MODEL}"]'}
    with tempfile.TemporaryDirectory() as folder:
        yield {**few(Settings().bundles), **keys, "TMPDIR": folder}


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


def test_sigterm_ends_a_back_off(
    settings: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """The code is 0: the failure is past."""
    with starting({**settings, "CAPSNET_WORKERS": "1"}) as (process, client):
        wait_until_ok(client, process, "/readyz")
        seen = ""
        while "another starts in 1.6 s" not in (seen := seen + capfd.readouterr().err):
            for worker in workers(process):
                os.kill(worker, signal.SIGKILL)
        assert 0 == ends_clean(process, settings)


# replacement


LOST = """
def encode(*_):
    raise DeviceLostError("the GPU has fallen off the bus")

Runtime.encode = encode
"""


@source_alone
def test_a_worker_that_lost_its_device_is_replaced(
    start_service: Start, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its caller gets a problem, also for several pictures, and the log has an entry."""
    process, client = start_service(CAPSNET_WORKERS="1", **patch_workers(tmp_path, LOST))
    answer = client.post("/classify", files=[("file", SEVEN)] * 2)
    assert httpx.codes.SERVICE_UNAVAILABLE == answer.status_code
    wait_until_ok(client, process, "/readyz")
    process.send_signal(signal.SIGTERM)
    assert 0 == process.wait(timeout=60)
    assert "inference failed: the GPU has fallen off the bus" in capfd.readouterr().err


@source_alone
def test_a_worker_whose_event_loop_hangs_is_replaced(
    start_service: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The next request is answered by another process."""
    environment, stuck = hanging(tmp_path, on_the_loop=True)
    limits = {"CAPSNET_HEARTBEAT_TIMEOUT_S": "2", "CAPSNET_INFERENCE_TIMEOUT_S": "100"}
    process, client = start_service(**limits, **environment)
    (before,) = workers(process)
    with pytest.raises(httpx.TransportError):
        client.post("/classify", files={"file": SEVEN}, timeout=PATIENCE_S)
    assert stuck.exists()
    wait_until_ok(client, process, "/readyz")
    assert 7 == label(client)
    assert [before] != workers(process)
    told = f"worker {before}: its event loop has not turned for 2 s"
    assert told in capfd.readouterr().err
