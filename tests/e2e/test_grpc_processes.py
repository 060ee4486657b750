"""gRPC next to reloads, drains and lost workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from model.bundle import MANIFEST
from service.api.v2.messages import SERVICE, messages
from service.pictures import SAMPLES
from service.settings import Settings
from tests.e2e.callers import Callers
from tests.e2e.test_faults import _source_alone, all_ready, settings, slow, start_service
from tests.e2e.test_workers import KEY, MODEL, Start, bundles, workers
from tests.processes import PATIENCE_S, free_port

__all__ = ["_source_alone", "bundles", "settings", "slow", "start_service"]
OTHER = "mnist-shared"
SEVEN = (SAMPLES / "7.png").read_bytes()


def infer(channel: grpc.Channel, timeout_s: float = PATIENCE_S) -> Any:
    """What a model makes of a 7."""
    known = messages()
    image = known["InferInputTensor"](name="image", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(SEVEN)
    call = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=known["ModelInferRequest"].SerializeToString,
        response_deserializer=known["ModelInferResponse"].FromString,
    )
    return call(known["ModelInferRequest"](model_name=MODEL, inputs=[image]), timeout=timeout_s)


@dataclass
class GrpcCallers:
    """Threads that ask over gRPC again and again, each time over a channel of its own."""

    port: int
    callers: int = 8
    answers: list[tuple[float, str]] = field(default_factory=list)
    """When each was asked for, in seconds of `time.monotonic`, and its version."""
    failed: Counter[str] = field(default_factory=Counter)
    """Codes."""

    def count(self) -> int:
        """How many answers there are."""
        return len(self.answers)

    def wait(self, answers: int = 50) -> None:
        """Return when there are so many more."""
        aim, deadline = self.count() + answers, time.monotonic() + PATIENCE_S
        while self.count() < aim:
            assert time.monotonic() < deadline, self
            time.sleep(0.05)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Call meanwhile."""
        over = threading.Event()

        def call() -> None:
            while not over.wait(0.02):
                asked = time.monotonic()
                # Without its own pool of connections, a channel would share one with the others.
                options = [("grpc.use_local_subchannel_pool", 1)]
                try:
                    with grpc.insecure_channel(f"127.0.0.1:{self.port}", options) as channel:
                        self.answers.append((asked, infer(channel).model_version))
                except grpc.RpcError as error:
                    self.failed[str(error.code())] += 1

        threads = [threading.Thread(target=call) for _ in range(self.callers)]
        for thread in threads:
            thread.start()
        try:
            self.wait(self.callers)
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
            print(f"gRPC: answered {self.count()}, failed {dict(self.failed)}")


def replace_bundle(bundles: Path) -> str:
    """Put other weights in the bundle's place, as docs/how-to/deploy.md says; their version."""
    incoming = bundles.parent / "incoming"
    shutil.copytree(Settings().bundles / OTHER, incoming)
    manifest = json.loads((incoming / MANIFEST).read_text())
    (incoming / MANIFEST).write_text(json.dumps({**manifest, "name": MODEL}))
    (bundles / MODEL).rename(bundles.parent / "previous")
    incoming.rename(bundles / MODEL)
    return str(manifest["version"])


@pytest.fixture
def port() -> int:
    """Of gRPC."""
    return free_port()


def test_a_reload_under_fresh_channels_loses_no_call(
    start_service: Start, settings: dict[str, str], bundles: Path, port: int
) -> None:
    """None is answered by the old weights once the reload has been."""
    grpc_settings = {"CAPSNET_GRPC_PORT": str(port), "CAPSNET_ADMIN_KEYS": f'["{KEY}"]'}
    _, client = start_service(**settings, **grpc_settings)
    all_ready(client)
    calls = GrpcCallers(port)
    with Callers(str(client.base_url), callers=8) as callers, calls.calling():
        version = replace_bundle(bundles)
        began = time.monotonic()
        answer = client.post("/models/reload", headers={"X-API-Key": KEY})
        reloaded = time.monotonic()
        assert httpx.codes.OK == answer.status_code, answer.text
        print(f"reloaded in {reloaded - began:.2f} s")
        calls.wait(100)
        callers.wait()
    assert {version} == {one for asked, one in calls.answers if asked > reloaded}
    assert {version} < {one for _, one in calls.answers}
    assert not calls.failed
    assert [] == callers.lost
    assert not callers.refused


def test_a_second_service_with_the_same_port_is_refused(
    start_service: Start,
    run_service: Callable[..., subprocess.CompletedProcess[str]],
    settings: dict[str, str],
    port: int,
) -> None:
    """Its calls would be answered by the one or the other, which has other keys and models."""
    start_service(**settings, CAPSNET_GRPC_PORT=str(port))
    result = run_service(**settings, CAPSNET_GRPC_PORT=str(port))
    assert 1 == result.returncode
    assert f"cannot listen on 127.0.0.1:{port} for gRPC" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert MODEL == infer(channel).model_name


def test_every_address_of_a_host_is_served(
    start_service: Start, settings: dict[str, str], port: int
) -> None:
    """A host may have an address of IPv6 too."""
    if not {"::1", "127.0.0.1"} <= {found[4][0] for found in socket.getaddrinfo("localhost", 80)}:
        pytest.skip("localhost has one address here")
    _, client = start_service(**settings, CAPSNET_GRPC_PORT=str(port), CAPSNET_HOST="localhost")
    all_ready(client)
    for address in ("127.0.0.1", "[::1]"):
        with grpc.insecure_channel(f"{address}:{port}") as channel:
            assert MODEL == infer(channel).model_name


def test_calls_and_requests_drain_within_the_same_time(
    start_service: Start, settings: dict[str, str], port: int
) -> None:
    """A client of each kind that holds on is waited for once, not one after the other."""
    limits = {"CAPSNET_DRAIN_TIMEOUT_S": "3", "CAPSNET_GRPC_PORT": str(port)}
    process, client = start_service(**settings, **limits)
    all_ready(client)
    body = open_body(client)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer(channel)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert 0 == process.wait(timeout=PATIENCE_S)
        assert time.monotonic() - began < 3 + 3
    body.close()


def open_body(client: httpx.Client) -> socket.socket:
    """A connection with a request whose body does not end."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port))
    head = ("POST /classify HTTP/1.1", "Host: a", "Content-Type: image/png", "Content-Length: 99")
    connection.sendall("\r\n".join([*head, "", "body"]).encode())
    return connection


def test_a_stopped_worker_holds_calls_no_longer_than_its_heartbeat(
    start_service: Start, settings: dict[str, str], port: int
) -> None:
    """The kernel gives it its share of connections until it is killed."""
    limits = {"CAPSNET_HEARTBEAT_TIMEOUT_S": "3", "CAPSNET_GRPC_PORT": str(port)}
    process, client = start_service(**settings, **limits)
    all_ready(client)
    os.kill(stopped := workers(process)[0], signal.SIGSTOP)
    calls = GrpcCallers(port)
    with calls.calling():
        began = time.monotonic()
        while stopped in workers(process):
            assert time.monotonic() < began + PATIENCE_S
        calls.wait(100)
    assert calls.failed.keys() <= {"StatusCode.UNAVAILABLE"}
    assert sum(calls.failed.values()) <= 2 * calls.callers
