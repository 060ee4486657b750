from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from ray.serve import Application
from ray.serve.schema import ServeDeploySchema
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

import deploy.ray as package
from deploy.ray.metrics import render
from deploy.ray.proxy import middlewares
from deploy.ray.serve import NAME, Arguments, app, options
from service.http.context import CLOSE_TIMEOUT_S
from service.http.middleware import cross_origin
from service.settings import Settings, SettingsError
from service.telemetry.metrics import Metrics

MANIFEST = Path(package.__file__).parent / "serve.yaml"


def arguments(**given: Any) -> Arguments:
    return Arguments.model_validate(given)


def test_the_application_has_what_its_arguments_say() -> None:
    """`serve run deploy.ray.serve:app replicas=2 model=mnist-attention` gives text."""
    built = app(arguments(replicas="2", model="mnist-attention"))
    assert isinstance(built, Application)
    deployment = built._bound_deployment
    assert (NAME, 2) == (deployment.name, deployment.num_replicas)
    settings = arguments(model="mnist-attention", cpus=2).settings()
    assert (("mnist-attention",), "mnist-attention") == (settings.models, settings.default_model)
    assert (1, 2, "cpu") == (settings.workers, settings.threads, settings.device)
    assert "cuda" == arguments(gpus=1).settings().device


def test_ray_leaves_admission_to_replicas_and_outlasts_their_drain() -> None:
    """Its own defaults starve the batcher, and kill what drains."""
    settings = Settings(drain_timeout_s=40, max_waiting_rows=300)
    chosen = options(arguments(replicas=2, gpus=1), settings)
    assert 300 == chosen["max_ongoing_requests"] == chosen["max_queued_requests"]
    assert chosen["graceful_shutdown_timeout_s"] > 40 + CLOSE_TIMEOUT_S
    assert {"num_cpus": 1, "num_gpus": 1} == chosen["ray_actor_options"]
    assert "autoscaling_config" not in chosen
    scaling = options(arguments(replicas=2, max_replicas=5), settings)["autoscaling_config"]
    assert (2, 5, settings.max_batch_rows) == (
        scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"],
    )  # fmt: skip


def test_a_setting_that_nobody_would_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's proxies know nothing of the service's gRPC port."""
    monkeypatch.setenv("CAPSNET_GRPC_PORT", "8001")
    with pytest.raises(SettingsError, match="CAPSNET_GRPC_PORT"):
        app(arguments())


def test_the_manifest_is_one_that_serve_takes() -> None:
    """Its arguments are the application's, and it logs no request twice."""
    config = ServeDeploySchema.model_validate(yaml.safe_load(MANIFEST.read_text()))
    (application,) = config.applications
    assert f"{app.__module__}:{app.__name__}" == application.import_path
    given = arguments(**application.args)
    assert (2, 8) == (given.replicas, given.max_replicas)
    assert config.logging_config
    assert not config.logging_config.enable_access_log


def test_metrics_of_replicas_are_told_apart() -> None:
    """Each metric is named once, its samples by replica."""
    one, other = Metrics(lambda: 3), Metrics(lambda: 5)
    page = render({"a": one.collect(), "b": other.collect()}).decode()
    assert 1 == page.count("# TYPE capsnet_waiting_rows ")
    samples = {
        sample.labels["replica"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "capsnet_waiting_rows"
    }
    assert {"a": 3, "b": 5} == samples


def proxied(status: int | None, headers: dict[str, str] | None = None) -> TestClient:
    """A proxy in front of what answers so; None: the replica died before it answered."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if status is not None:
            await PlainTextResponse("text", status, headers)(scope, receive, send)

    return proxied_app(answer)


def proxied_app(answer: ASGIApp) -> TestClient:
    """A proxy in front of an app."""
    (middleware,) = middlewares()
    wrapped = middleware.cls(answer, *middleware.args, **middleware.kwargs)
    return TestClient(wrapped, base_url="http://localhost")


@pytest.mark.parametrize("status", [None, 404, 500, 503])
def test_errors_of_the_proxy_say_when_to_come_back(status: int | None) -> None:
    """A dead replica, or none yet: the request may be repeated."""
    answer = proxied(status).post("/classify")
    assert (503, "1") == (answer.status_code, answer.headers["retry-after"])
    assert "urn:capsnet:problem:unavailable" == answer.json()["type"]
    assert {"error"} == proxied(status).get("/v2/models/mnist").json().keys()


def test_a_full_proxy_is_busy() -> None:
    """Ray's backpressure is a problem like the service's own."""
    answer = proxied(429, {"Retry-After": "3"}).post("/classify")
    assert (429, "3") == (answer.status_code, answer.headers["retry-after"])
    assert "urn:capsnet:problem:busy" == answer.json()["type"]


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_answers_of_replicas_pass_as_they_are(status: int) -> None:
    """But for the second of two equal ids: the proxy adds one too."""
    headers = {"Server-Timing": "total;dur=1", "X-Request-ID": "abc"}
    answer = proxied(status, headers).get("/")
    assert (status, "text", "abc") == (
        answer.status_code, answer.text, answer.headers["x-request-id"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("origin", "status"), [("https://page.example", 200), ("https://other.example", 400)]
)
def test_answers_to_preflights_pass_as_they_are(origin: str, status: int) -> None:
    """They come from the middleware of CORS, before the service's own."""

    async def unasked(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("the preflight is answered before")

    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    behind = cross_origin(unasked, ["https://page.example"])
    answer = proxied_app(behind).options("/classify", headers=headers)
    assert status == answer.status_code
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_paths_of_the_proxy_itself_are_its_own() -> None:
    """Load balancers of Ray's ask for its health there."""
    assert 500 == proxied(500).get("/-/healthz").status_code
