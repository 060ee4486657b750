from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.pictures import SAMPLES
from service.settings import Settings

SEVEN = {"file": (SAMPLES / "7.png").read_bytes()}


@pytest.fixture
def starting(settings: Settings) -> Iterator[TestClient]:
    """The service before its bundles are loaded."""
    with TestClient(create_app(settings)) as client:
        yield client


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


def test_an_engine_makes_it_ready(starting: TestClient, settings: Settings) -> None:
    """Once the bundles are there, requests are answered."""
    app = starting.app
    assert isinstance(app, FastAPI)
    app.state.bundles.use(open_engine(load_runtimes(settings)))
    assert {"blocks", "mnist", "strokes"} == set(starting.get("/readyz").json()["models"])
    assert 200 == starting.post("/classify", files=SEVEN).status_code


def test_a_probe_is_no_rejection(starting: TestClient) -> None:
    """Probes of a service that starts are not counted as refused work; requests are."""
    starting.get("/readyz")
    assert "capsnet_rejections_total{" not in starting.get("/metrics").text
    starting.post("/classify", files=SEVEN)
    assert 'capsnet_rejections_total{reason="unavailable"} 1.0' in starting.get("/metrics").text
