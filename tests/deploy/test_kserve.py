"""The manifests in deploy/kserve, held against the code."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from service.app import create_app
from service.settings import Settings
from service.telemetry.metrics import Metrics
from tests.deploy.pod import environment, parse_quantity, shutdown_s, stop_wait_s
from tests.deploy.test_kubernetes import MANIFESTS, RESTRICTED

FOLDER = MANIFESTS.parent / "kserve"


@pytest.fixture(scope="module")
def inference_service() -> dict[str, Any]:
    """The InferenceService."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "inferenceservice.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def predictor(inference_service: dict[str, Any]) -> dict[str, Any]:
    """Its pods."""
    found: dict[str, Any] = inference_service["spec"]["predictor"]
    return found


@pytest.fixture(scope="module")
def container(predictor: dict[str, Any]) -> dict[str, Any]:
    """Their one container."""
    (found,) = predictor["containers"]
    assert isinstance(found, dict)
    return found


def test_the_service_starts_with_the_settings(
    container: dict[str, Any], predictor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are known and in range, no others are added, and the port is the container's."""
    for name, value in environment(container).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment()
    assert [settings.port] == [port["containerPort"] for port in container["ports"]]
    assert predictor["enableServiceLinks"] is False


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_are_those_of_the_protocol(container: dict[str, Any], probe: str) -> None:
    """Each is a route of /v2 that needs no key, at the container's port."""
    asked = container[probe]["httpGet"]
    expected = "/v2/health/live" if probe == "livenessProbe" else "/v2/health/ready"
    assert {"path": expected, "port": Settings(**_port(container)).port} == asked
    (route,) = [one for one in create_app(Settings()).routes if one.path == asked["path"]]  # type: ignore[attr-defined]
    assert "public" == getattr(route, "permission", None)


def _port(container: dict[str, Any]) -> dict[str, Any]:
    return {"port": environment(container)["CAPSNET_PORT"]}


def test_pods_are_those_of_the_cpu_overlay(
    predictor: dict[str, Any], container: dict[str, Any]
) -> None:
    """The same rights, limits, image, user and end; what is said of one holds for both."""
    overlay = yaml.safe_load((MANIFESTS / "overlays/cpu/kustomization.yaml").read_text())
    (image,) = overlay["images"]
    (patch,) = [yaml.safe_load(one["patch"]) for one in overlay["patches"]]
    (limited,) = patch["spec"]["template"]["spec"]["containers"]
    base = yaml.safe_load((MANIFESTS / "base/deployment.yaml").read_text())
    pod = base["spec"]["template"]["spec"]
    assert f"{image['newName']}:{image['newTag']}" == container["image"]
    assert limited["resources"] == container["resources"]
    assert RESTRICTED == container["securityContext"]
    assert pod["containers"][0]["lifecycle"] == container["lifecycle"]
    own = {"containers", "topologySpreadConstraints"}
    assert {name: predictor.get(name) for name in pod.keys() - own} == {
        name: pod[name] for name in pod.keys() - own
    }
    assert shutdown_s(container) < stop_wait_s(predictor)


def test_keda_scales_on_a_metric_that_is_scraped(
    inference_service: dict[str, Any], predictor: dict[str, Any], container: dict[str, Any]
) -> None:
    """The query finds the pods that the monitor scrapes; one full batch for each worker."""
    name = inference_service["metadata"]["name"]
    (external,) = [one["external"] for one in predictor["autoScaling"]["metrics"]]
    query = external["metric"]["query"]
    (metric,) = re.findall(r"capsnet_\w+", query)
    assert f"\n{metric} " in Metrics().render().decode()
    assert f'pod=~"{name}-predictor-.*"' in query
    workers = int(parse_quantity(container["resources"]["limits"]["cpu"]))
    assert workers * Settings().max_batch_rows == int(external["target"]["value"])
    spec = yaml.safe_load((FOLDER / "podmonitor.yaml").read_text())["spec"]
    assert {"serving.kserve.io/inferenceservice": name} == spec["selector"]["matchLabels"]
    (scraped,) = spec["podMetricsEndpoints"]
    assert [scraped["port"]] == [port["name"] for port in container["ports"]]
    (job,) = [one["replacement"] for one in scraped["relabelings"] if one["targetLabel"] == "job"]
    assert f'job="{job}"' in query
