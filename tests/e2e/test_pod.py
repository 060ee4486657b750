"""A container of the image with the rights and limits of deploy/kubernetes; `make image-test`."""

from __future__ import annotations

import io
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from service.pictures import SAMPLES
from tests.deploy import pod
from tests.deploy.test_kubernetes import MANIFESTS, Objects, container_of, pod_of, render
from tests.e2e.conftest import Container
from tests.processes import PATIENCE_S, free_port, wait_until_ok

__all__ = ["render"]  # the fixture

NAME = "capsnet-pod-of-tests"
LOAD_S = 20
CALLERS = 48
LARGE = (5000, 5000)
"""The most pixels that a picture may have."""


class Pod(NamedTuple):
    """A running container of a pod."""

    engine: str
    process: subprocess.Popen[bytes]
    client: httpx.Client
    manifest: dict[str, Any]

    @property
    def container(self) -> dict[str, Any]:
        """Of the manifest."""
        (container,) = self.manifest["containers"]
        assert isinstance(container, dict)
        return container

    def execute(self, *command: str) -> str:
        """Run a command in the container."""
        return subprocess.run(
            [self.engine, "exec", NAME, *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        ).stdout

    def peak_bytes(self) -> int:
        """The most memory that all processes and /tmp ever took, with either kind of cgroup."""
        files = ("memory.peak", "memory/memory.max_usage_in_bytes")
        shell = " || ".join(f"cat /sys/fs/cgroup/{file} 2>/dev/null" for file in files)
        return int(self.execute("sh", "-c", shell))


@pytest.fixture
def running_pod(container: Container | None, render: Callable[[Path], Objects]) -> Iterator[Pod]:
    """The image as the cpu overlay runs it, but for the port: the network is the host's."""
    if container is None:
        pytest.skip("needs an image: make image-test")
    objects = render(MANIFESTS / "overlays" / "cpu")
    port = free_port()
    environment = {**pod.environment(container_of(objects)), "CAPSNET_PORT": str(port)}
    command = [
        *(container.engine, "run", "--rm", f"--name={NAME}", "--network=host", "--no-healthcheck"),
        *pod.options(pod_of(objects)),
        *(f"--env={name}={value}" for name, value in environment.items()),
        container.image,
    ]
    process = subprocess.Popen(command)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            path = container_of(objects)["startupProbe"]["httpGet"]["path"]
            wait_until_ok(client, process, path)
            yield Pod(container.engine, process, client, pod_of(objects))
    finally:
        subprocess.run([container.engine, "rm", "--force", NAME], capture_output=True, check=False)
        process.wait(timeout=PATIENCE_S)


def large_picture() -> bytes:
    """A file with the most pixels that are allowed."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (250, 250, 4), np.uint8)
    Image.fromarray(noise).resize(LARGE, Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


def call(
    client: httpx.Client, models: list[str], turn: int, large: bytes, until: float
) -> set[int]:
    """Classify until then, every eighth caller large pictures; the statuses."""
    statuses: set[int] = set()
    while time.monotonic() < until:
        label = turn % 10
        file = large if turn % 8 == 0 else (SAMPLES / f"{label}.png").read_bytes()
        query = {"model": models[turn % len(models)]}
        answer = client.post("/classify", params=query, files={"file": file})
        statuses.add(answer.status_code)
        turn += CALLERS
    return statuses


def test_a_pod_stays_below_its_memory_under_load(running_pod: Pod) -> None:
    """All networks and the largest pictures at once: no process is lost, the limit not reached."""
    client, large = running_pod.client, large_picture()
    models = client.get("/readyz").json()["models"]
    until = time.monotonic() + LOAD_S
    with (
        httpx.Client(
            base_url=client.base_url,
            timeout=PATIENCE_S,
            limits=httpx.Limits(max_connections=CALLERS),
        ) as many,
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        calls = [threads.submit(call, many, models, n, large, until=until) for n in range(CALLERS)]
        statuses = set().union(*(one.result() for one in calls))
    assert {200} <= statuses <= {200, 429}
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = {(one.name, *one.labels.values()): one.value for f in families for one in f.samples}
    assert 2 == samples["capsnet_workers", "ready"]
    assert 0 == samples.get(("capsnet_processes_total", "restarted"), 0)
    limit = pod.parse_quantity(running_pod.container["resources"]["limits"]["memory"])
    peak = running_pod.peak_bytes()
    print(f"peak memory: {peak / pod.MIB:.0f} MiB of {limit / pod.MIB:.0f}")
    assert peak < limit


def test_a_pod_drains_within_its_grace(running_pod: Pod) -> None:
    """As Kubernetes ends it: preStop, then SIGTERM, under load. No request is lost."""
    picture = (SAMPLES / "7.png").read_bytes()
    command = pod.pre_stop(running_pod.container)
    began = time.monotonic()

    def answers() -> int:
        """Classify, a connection each, until none is accepted; how many answers came."""
        count = 0
        while True:
            try:
                answer = httpx.post(
                    f"{running_pod.client.base_url}/classify", files={"file": picture}
                )
            except httpx.ConnectError:
                return count
            assert 7 == answer.json()["predictions"][0]["label"]
            count += 1

    with ThreadPoolExecutor(4) as threads:
        callers = [threads.submit(answers) for _ in range(4)]
        running_pod.execute(*command)
        wait = pod.stop_wait_s(running_pod.manifest) - int(time.monotonic() - began)
        subprocess.run(
            [running_pod.engine, "stop", "--time", str(wait), NAME], capture_output=True, check=True
        )
        counts = [one.result() for one in as_completed(callers)]
    assert min(counts) > 0
    assert 0 == running_pod.process.wait(timeout=PATIENCE_S)
    assert time.monotonic() - began < pod.shutdown_s(running_pod.container)
