from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.pictures import SAMPLES
from service.settings import Settings
from tests.processes import PATIENCE_S

SEVEN = {"file": (SAMPLES / "7.png").read_bytes()}


@pytest.fixture
def starting(settings: Settings) -> TestClient:
    """The service before its bundles are loaded, as its lifespan has not begun."""
    return TestClient(create_app(settings), base_url="http://localhost")


def test_a_starting_service_is_alive_but_not_ready(starting: TestClient) -> None:
    """The supervisor leaves it alone, and the load balancer too."""
    assert 200 == starting.get("/livez").status_code
    assert 503 == starting.get("/readyz").status_code
    assert 200 == starting.get("/metrics").status_code


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("POST", "/classify"),
        ("POST", "/reconstruct"),
        ("POST", "/perturb?dim=4&delta=0.1"),
        ("GET", "/models"),
        ("GET", "/models/mnist"),
    ],
)
def test_a_starting_service_says_when_to_come_back(
    method: str, route: str, starting: TestClient
) -> None:
    """Whatever needs a bundle is a 503 with Retry-After."""
    answer = starting.request(method, route, files=SEVEN if method == "POST" else None)
    assert (503, "1") == (answer.status_code, answer.headers["retry-after"])
    problem = answer.json()
    assert "urn:capsnet:problem:unavailable" == problem["type"]
    assert "the service is starting" == problem["detail"]


def test_what_cannot_be_loaded_is_told_by_the_probes(settings: Settings, tmp_path: Path) -> None:
    """Nobody else would see it where there is no supervisor."""
    with TestClient(
        create_app(settings.model_copy(update={"bundles": tmp_path})), base_url="http://localhost"
    ) as client:
        deadline = time.monotonic() + PATIENCE_S
        while (alive := client.get("/livez")).status_code == httpx.codes.OK:
            assert time.monotonic() < deadline
        assert "is not among the loaded bundles (none)" in alive.json()["detail"]
        assert alive.json()["detail"] == client.get("/readyz").json()["detail"]


def test_a_probe_is_no_rejection(starting: TestClient) -> None:
    """Probes of a service that starts are not counted as refused work; requests are."""
    starting.get("/readyz")
    assert 'reason="unavailable"' not in starting.get("/metrics").text
    starting.post("/classify", files=SEVEN)
    assert 'capsnet_rejections_total{reason="unavailable"} 1.0' in starting.get("/metrics").text
