from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.pictures import SAMPLES
from tests.processes import prometheus_of

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="session")
def prometheus(
    service: httpx.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A Prometheus of its own that scrapes the service every second; skips where there is none."""
    labels = {"namespace": "capsnet", "pod": "capsnet-predictor-0"}  # an operator's, of a pod
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus_of(service.base_url.netloc.decode(), folder, labels=labels) as client:
        yield client


def ask(prometheus: httpx.Client, query: str) -> float | None:
    """The value of a query with one result; None where there is none yet."""
    answer = prometheus.get("/api/v1/query", params={"query": query}).json()
    assert "success" == answer["status"]
    results = answer["data"]["result"]
    return float(results[0]["value"][1]) if results else None


def wait_for(prometheus: httpx.Client, query: str, expected: float) -> None:
    """Ask until at least the expected value was scraped: other tests ask the service too."""
    deadline = time.monotonic() + 60
    while (value := ask(prometheus, query)) is None or value < expected:
        assert time.monotonic() < deadline, f"{query}: {value}"
        time.sleep(0.1)


def test_a_prometheus_reads_what_the_service_counts(
    service: httpx.Client, prometheus: httpx.Client
) -> None:
    """Classified pictures are in the database of a real Prometheus soon afterwards, by model."""
    requests = 'sum(capsnet_requests_total{route="/classify", status="200"})'
    rows = {
        name: f'sum(capsnet_batch_rows_sum{{model="{name}", graph="encode"}})'
        for name in ("mnist-shared", "mnist-matrix")
    }
    wait_for(prometheus, "up", 1)
    before = {query: ask(prometheus, query) or 0 for query in (requests, *rows.values())}
    for name in rows:
        for label in range(3):
            picture = (SAMPLES / f"{label}.png").read_bytes()
            service.post("/classify", params={"model": name}, files={"file": picture})
    wait_for(prometheus, requests, before[requests] + 3 * len(rows))
    for query in rows.values():
        wait_for(prometheus, query, before[query] + 3)
    assert ask(prometheus, "capsnet_waiting_rows") is not None


@pytest.mark.parametrize(
    "manifest", ["kubernetes/components/keda/scaledobject.yaml", "kserve.yaml"]
)
def test_autoscalers_get_a_number(prometheus: httpx.Client, manifest: str) -> None:
    """The query of each manifest finds the waiting rows."""
    (query,) = re.findall(r"^ +query: (.+)$", (DEPLOY / manifest).read_text(), re.MULTILINE)
    wait_for(prometheus, query, 0)
