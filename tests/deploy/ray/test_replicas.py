"""Two replicas of a real cluster of Ray, next to the service alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
import yaml
from tests.e2e.callers import Callers

from service.pictures import SAMPLES
from tests.browser.conftest import browser
from tests.browser.playground import open_playground
from tests.deploy.ray.clusters import BIN, cluster
from tests.deploy.ray.test_serve import MANIFEST
from tests.e2e.test_prometheus import ask, wait_for
from tests.processes import (
    PATIENCE_S,
    SOURCE,
    free_port,
    prometheus_of,
    running,
)
from tools.examples import ADMIN_KEY, call, operations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SEVEN = (SAMPLES / "7.png").read_bytes()
QUICK = {"CAPSNET_MODELS": '["mnist-attention"]', "CAPSNET_DEFAULT_MODEL": "mnist-attention"}
PAGES = ["/", "/docs", "/openapi.json", "/static/main.js", "/nothing", "/v2", "/v2/nothing"]
V2 = ["/health/live", "/health/ready", "/models/mnist", "/models/mnist/config", "/models/nothing"]


def command(settings: dict[str, str]) -> list[str]:
    """What `make ray REPLICAS=2` runs."""
    port = settings["CAPSNET_PORT"]
    return [sys.executable, "-m", "deploy.ray", "--replicas", "2", "--port", port]


Start = tuple[subprocess.Popen[bytes], httpx.Client]


@contextmanager
def replicas(log: Path, **settings: str) -> Iterator[Start]:
    """Two replicas that are ready."""
    with log.open("wb") as file, running(command, settings, stderr=file) as (process, client):
        wait(lambda: len(pids(client)) == 2)
        yield process, client


def wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def pids(client: httpx.Client) -> dict[str, int]:
    """The process of each replica, as any of them tells."""
    headers = {"X-API-Key": ADMIN_KEY}
    page = httpx.get(f"{client.base_url}/metrics", headers=headers, timeout=PATIENCE_S).text
    found = re.findall(r'process_start_time_seconds\{pid="(\d+)",replica="(\w+)"\}', page)
    return {replica: int(pid) for pid, replica in found}


@pytest.fixture(scope="module")
def all_bundles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    """Two replicas with all bundles, and their log."""
    log = tmp_path_factory.mktemp("ray") / "log"
    with replicas(log, CAPSNET_ADMIN_KEYS=f'["{ADMIN_KEY}"]') as (_, client):
        yield client, log


@pytest.fixture(scope="module")
def ray(all_bundles: tuple[httpx.Client, Path]) -> httpx.Client:
    """Two replicas with all bundles."""
    return all_bundles[0]


@pytest.fixture(scope="module")
def alone() -> Iterator[httpx.Client]:
    """The service without Ray."""
    settings = {"CAPSNET_WORKERS": "1", "CAPSNET_ADMIN_KEYS": f'["{ADMIN_KEY}"]'}
    with running(lambda _: SOURCE, settings) as (_, client):
        yield client


def said(answer: httpx.Response) -> tuple[int, str, bytes]:
    """What an answer says; ids of requests are no part of it."""
    body = re.sub(rb'"request_id":"[^"]+"', b"", answer.content)
    return answer.status_code, answer.headers["content-type"], body


def test_every_route_answers_as_the_service_alone(ray: httpx.Client, alone: httpx.Client) -> None:
    """JSON, and pictures where a route draws."""
    compared = set()
    for method, path, operation in operations(alone.get("/openapi.json").json()):
        if path in ("/metrics", "/models/reload"):
            continue
        for kind in operation["responses"]["200"]["content"]:
            answers = []
            for client in (alone, ray):
                client.headers["Accept"] = kind
                answers.append(said(call(client, method, path, operation)))
            assert answers[0] == answers[1], f"{method} {path} {kind}"
            assert (200, kind) == (answers[0][0], answers[0][1].partition(";")[0])
            compared.add((path, kind))
    pictures = {path for path, kind in compared if kind == "image/png"}
    assert {"/sweep", "/routing", "/segment"} < pictures


@pytest.mark.parametrize("path", [*PAGES, *(f"/v2{path}" for path in V2)])
def test_pages_are_those_of_the_service_alone(
    path: str, ray: httpx.Client, alone: httpx.Client
) -> None:
    """The playground, its files, the protocol's probes and models, and errors."""
    answers = [client.get(path, headers={"X-API-Key": ADMIN_KEY}) for client in (alone, ray)]
    assert said(answers[0]) == said(answers[1])
    assert 1 == len(answers[1].headers.get_list("x-request-id"))


def test_tritonclient_gets_binary_tensors(ray: httpx.Client) -> None:
    """They pass Ray's proxies as they are."""
    image = triton.InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([SEVEN], object))
    with triton.InferenceServerClient(ray.base_url.netloc.decode()) as client:
        outputs = [triton.InferRequestedOutput(name) for name in ("label", "poses")]
        answer = client.infer("mnist", [image], outputs=outputs)
    assert [[7]] == answer.as_numpy("label").tolist()
    assert (1, 10, 16) == answer.as_numpy("poses").shape


def test_a_reload_is_a_deployment(ray: httpx.Client) -> None:
    """The answer says so."""
    answer = ray.post("/models/reload", headers={"X-API-Key": ADMIN_KEY})
    assert 409 == answer.status_code
    assert "deploy the application again" in answer.json()["detail"]


def test_the_log_says_which_replica_answered(all_bundles: tuple[httpx.Client, Path]) -> None:
    """In the line of each request, and nowhere in the answer."""
    client, log = all_bundles
    names = "|".join(pids(client))
    answers = [client.post("/classify", files={"file": SEVEN}) for _ in range(20)]
    ids = {answer.headers["x-request-id"] for answer in answers}
    told = re.compile(rf"request_id=(\S+) .*replica=(?:{names})")
    wait(lambda: ids <= set(told.findall(log.read_text())))
    assert not any(re.search(names, f"{answer.text} {answer.headers}") for answer in answers)


def test_prometheus_scrapes_all_replicas(ray: httpx.Client, tmp_path: Path) -> None:
    """One target has the metrics of all, by replica."""
    sent = 'sum(capsnet_requests_total{route="/classify", status="200"})'
    with prometheus_of(ray.base_url.netloc.decode(), tmp_path, labels={}) as prometheus:
        wait_for(prometheus, "count(count by (replica) (capsnet_build_info))", 2)
        wait_for(prometheus, "count(capsnet_waiting_rows)", 2)
        before = ask(prometheus, sent) or 0
        for _ in range(5):
            ray.post("/classify", files={"file": SEVEN})
        wait_for(prometheus, sent, before + 5)


def test_a_killed_replica_is_mended_by_retries(ray: httpx.Client) -> None:
    """Its requests get 503 with Retry-After; every label is right, and another replica starts."""
    before = pids(ray)
    with Callers(str(ray.base_url), callers=8) as callers:
        os.kill(killed := next(iter(before.values())), signal.SIGKILL)
        callers.wait(200)
        wait(lambda: len(pids(ray)) == 2 and killed not in pids(ray).values())
        callers.wait(100)
    assert [] == callers.wrong == callers.lost
    assert callers.refused.keys() <= {503}
    assert callers.refused[503] <= callers.callers


def test_the_playground_works(browser: Browser, ray: httpx.Client) -> None:
    """A real browser loads it through Ray, draws and sees an answer."""
    with open_playground(browser, str(ray.base_url)) as playground:
        playground.take_sample(7)
        assert "7" == playground.label
        assert [] == playground.complaints == playground.foreign_requests


def test_sigterm_drains(tmp_path: Path) -> None:
    """Unready at once; what is under way is answered, and the code is 0."""
    with replicas(tmp_path / "log", **QUICK) as (process, client):

        def body() -> Iterator[bytes]:
            yield SEVEN[:100]
            process.send_signal(signal.SIGTERM)
            wait(lambda: httpx.get(f"{client.base_url}/readyz").status_code == 503)
            yield SEVEN[100:]

        answer = client.post("/classify", content=body(), headers={"Content-Type": "image/png"})
        assert 7 == answer.json()["predictions"][0]["label"]
        assert 0 == process.wait(PATIENCE_S)


def test_a_bundle_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    """With the reason, and without waiting for ever."""
    settings = {"CAPSNET_PORT": str(free_port()), "CAPSNET_BUNDLES": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("wb") as file:
        ended = subprocess.run(
            command(settings), env={**os.environ, **settings}, stderr=file, stdout=file,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert 0 != ended.returncode
    assert "is not among the loaded bundles" in log.read_text()


def test_a_rollout_under_load_loses_nothing(tmp_path: Path) -> None:
    """`serve deploy` of the manifest, then of one with another bundle."""
    config = yaml.safe_load(MANIFEST.read_text())
    config["http_options"] = {"host": "127.0.0.1", "port": free_port()}
    (application,) = config["applications"]
    url = f"http://127.0.0.1:{config['http_options']['port']}"

    def deploy(address: str, model: str) -> None:
        application["args"] |= {"model": model, "max_replicas": 0}
        (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
        deploying = [BIN / "serve", "deploy", tmp_path / "serve.yaml", "--address", address]
        subprocess.run(deploying, check=True, capture_output=True, timeout=PATIENCE_S)

    def models() -> set[str]:
        answers = [httpx.get(f"{url}/readyz", timeout=PATIENCE_S) for _ in range(12)]
        return {name for answer in answers for name in answer.json().get("models", ["none"])}

    with cluster(tmp_path, cpus=2) as there:
        deploy(there.dashboard, "mnist-attention")
        with httpx.Client(base_url=url) as client:
            wait(lambda: _answers(client) and len(pids(client)) == 2)
        with Callers(url, callers=8) as callers:
            deploy(there.dashboard, "mnist-compact")
            wait(lambda: models() == {"mnist-compact"})
            callers.wait(100)
    assert [] == callers.wrong == callers.lost
    assert not callers.refused


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False
