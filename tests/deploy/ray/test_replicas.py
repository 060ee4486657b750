"""Ray Serve and Ray Data on real clusters of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from model import SHIPPED
from model.bundle import Bundle
from service.pictures import SAMPLES
from tests.deploy.ray.test_serve import MANIFEST
from tests.e2e.conftest import data_dir
from tests.e2e.workers import wait_for
from tests.pictures import as_png
from tests.processes import PATIENCE_S, SOURCE, free_port, running, wait_until_ok
from tools.client import operations
from tools.examples import ADMIN_KEY, call
from training.data.datasets import DATASETS, load

__all__ = ["data_dir"]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
MODEL = "mnist-attention"
SEVEN = (SAMPLES / "7.png").read_bytes()
BIN = Path(sys.executable).parent


class Cluster(NamedTuple):
    """Where a cluster is."""

    address: str
    """For drivers."""
    dashboard: str
    """For `serve deploy`."""
    pid: int


@contextmanager
def cluster(folder: Path, *, cpus: int) -> Iterator[Cluster]:
    """A cluster as `ray start --head` makes it, its log in a folder."""
    port, dashboard = free_port(), free_port()
    start = (BIN / "ray", "start", "--head", "--block", f"--port={port}", f"--num-cpus={cpus}")
    more = [f"--dashboard-port={dashboard}", "--object-store-memory=100000000"]
    own = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen([*start, *more], env=own, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{dashboard}", timeout=5) as client:
            headers = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
            client.headers.update(headers)
            wait_until_ok(client, process, "/api/version")
            yield Cluster(f"127.0.0.1:{port}", str(client.base_url), process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def command(settings: dict[str, str]) -> list[str]:
    """What `make ray REPLICAS=2` runs."""
    port = settings["CAPSNET_PORT"]
    return [sys.executable, "-m", "deploy.ray", "--replicas", "2", "--port", port]


@pytest.fixture(scope="module")
def ray() -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Two replicas with all bundles."""
    with running(command, {"CAPSNET_ADMIN_KEYS": f'["{ADMIN_KEY}"]'}) as started:
        yield started


def said(answer: httpx.Response) -> tuple[int, str, bytes]:
    """What an answer says; ids of requests are no part of it."""
    body = re.sub(rb'"request_id":"[^"]+"', b"", answer.content)
    return answer.status_code, answer.headers["content-type"], body


def test_every_route_answers_as_the_service_alone(
    ray: tuple[subprocess.Popen[bytes], httpx.Client],
) -> None:
    """JSON, pictures, the playground's files, and errors."""
    settings = {"CAPSNET_WORKERS": "1", "CAPSNET_ADMIN_KEYS": f'["{ADMIN_KEY}"]'}
    with running(lambda _: SOURCE, settings) as (_, alone):
        for method, path, operation in operations(alone.get("/openapi.json").json()):
            if path in ("/metrics", "/models/reload"):
                continue
            for kind in operation["responses"]["200"]["content"]:
                answers = []
                for client in (alone, ray[1]):
                    client.headers["Accept"] = kind
                    answers.append(said(call(client, method, path, operation)))
                assert answers[0] == answers[1], f"{method} {path} {kind}"
        for path in ("/", "/static/main.js", "/nothing", "/v2", "/v2/models/nothing"):
            assert said(alone.get(path)) == said(ray[1].get(path))


def test_a_reload_is_a_deployment(ray: tuple[subprocess.Popen[bytes], httpx.Client]) -> None:
    """The answer says so."""
    answer = ray[1].post("/models/reload", headers={"X-API-Key": ADMIN_KEY})
    assert 409 == answer.status_code
    assert "deploy it again" in answer.json()["detail"]


def test_sigterm_drains(ray: tuple[subprocess.Popen[bytes], httpx.Client]) -> None:
    """Unready at once; what is under way is answered, and the code is 0."""
    process, client = ray

    def body() -> Iterator[bytes]:
        yield SEVEN[:100]
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{client.base_url}/readyz").status_code == 503)
        yield SEVEN[100:]

    headers = {"Content-Type": "image/png", "Accept": "application/json"}
    answer = client.post("/classify", content=body(), headers=headers)
    assert 7 == answer.json()["predictions"][0]["label"]
    assert 0 == process.wait(PATIENCE_S)


@contextmanager
def asking(url: str) -> Iterator[list[int | str]]:
    """Outcomes of requests that are sent meanwhile: labels of a 7, or what came instead."""
    over, seen = threading.Event(), list[int | str]()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            while not over.wait(0.02):
                try:
                    answer = client.post("/classify", files={"file": SEVEN})
                    seen.append(answer.json()["predictions"][0]["label"])
                except (httpx.TransportError, KeyError) as error:
                    seen.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_rollout_under_load_loses_nothing(tmp_path: Path) -> None:
    """`serve deploy` of the manifest, then of one with another bundle."""
    config = yaml.safe_load(MANIFEST.read_text())
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    (application,) = config["applications"]
    url = f"http://127.0.0.1:{config['http_options']['port']}"

    def deploy(address: str, model: str) -> None:
        application["args"] |= {"model": model, "max_replicas": 0}
        (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
        deploying = (BIN / "serve", "deploy", tmp_path / "serve.yaml", "--address", address)
        subprocess.run(deploying, check=True, capture_output=True, timeout=PATIENCE_S)

    def served(model: str) -> Callable[[], bool]:
        def all_do() -> bool:
            try:
                answers = [httpx.get(f"{url}/readyz", timeout=PATIENCE_S) for _ in range(12)]
            except httpx.TransportError:
                return False
            return all(one.is_success and one.json()["models"] == [model] for one in answers)

        return all_do

    with cluster(tmp_path, cpus=2) as there:
        deploy(there.dashboard, MODEL)
        wait_for(served(MODEL))
        with asking(url) as seen:
            deploy(there.dashboard, "mnist-compact")
            wait_for(served("mnist-compact"))
    assert {7} == set(seen)


@pytest.mark.data
def test_a_killed_job_goes_on(data_dir: Path, tmp_path: Path) -> None:
    """The test split has the recorded error in the end, one row for each picture."""
    digits = load(DATASETS["mnist"], "test", data_dir, fetch=False)
    (folder := tmp_path / "pictures").mkdir()
    for number, image in enumerate(digits.images):
        (folder / f"{number:05d}.png").write_bytes(as_png(image))
    output = tmp_path / "out"
    job = [sys.executable, "-m", "deploy.ray.score", str(folder), str(output)]
    job += ["--model", MODEL, "--actors", "2"]
    process = subprocess.Popen(job)
    deadline = time.monotonic() + PATIENCE_S
    while len(list((output / "_done").glob("*[0-9].parquet"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    subprocess.run(job, check=True, timeout=300)
    rows = pq.read_table(output)
    numbers = [int(Path(path).stem) for path in rows["path"].to_pylist()]
    assert list(range(10_000)) == sorted(numbers)
    wrong = int((digits.labels[numbers] != np.array(rows["label"].to_pylist())).sum())
    assert Bundle.open(SHIPPED / MODEL).manifest.metrics["test_errors"] == wrong
