from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from service.app import CLOSE_TIMEOUT_S
from service.settings import Settings, SettingsError

MANIFEST = Path(__file__).parents[3] / "deploy" / "ray" / "serve.yaml"


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    """What is tested."""
    return importlib.import_module("deploy.ray.serve")


def test_ray_leaves_admission_to_replicas_and_outlasts_their_drain(serve: ModuleType) -> None:
    """Its own defaults starve the batcher, and kill what drains."""
    settings = Settings(drain_timeout_s=40, max_waiting_rows=300)
    chosen = serve.options(serve.Arguments(replicas=2, gpus=1), settings)
    assert 300 == chosen["max_ongoing_requests"] == chosen["max_queued_requests"]
    assert chosen["graceful_shutdown_timeout_s"] > 40 + CLOSE_TIMEOUT_S
    assert {"num_cpus": 1, "num_gpus": 1} == chosen["ray_actor_options"]
    assert "autoscaling_config" not in chosen
    growing = serve.options(serve.Arguments(replicas=2, max_replicas=5), settings)
    scaling = growing["autoscaling_config"]
    assert (2, 5, settings.max_batch_rows) == (
        scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"],
    )  # fmt: skip


def test_a_setting_that_nobody_would_read_is_refused(
    serve: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's proxies know nothing of the service's gRPC port."""
    monkeypatch.setenv("CAPSNET_GRPC_PORT", "8001")
    with pytest.raises(SettingsError, match="CAPSNET_GRPC_PORT"):
        serve.app(serve.Arguments())


def test_the_manifest_is_one_that_serve_takes(serve: ModuleType) -> None:
    """Its arguments are the application's, and it logs no request twice."""
    schema = importlib.import_module("ray.serve.schema").ServeDeploySchema
    config = schema.model_validate(yaml.safe_load(MANIFEST.read_text()))
    (application,) = config.applications
    assert f"{serve.app.__module__}:{serve.app.__name__}" == application.import_path
    given = serve.Arguments(**application.args)
    assert (2, 8) == (given.replicas, given.max_replicas)
    assert config.logging_config
    assert not config.logging_config.enable_access_log
