"""The manifests in deploy/kubernetes and deploy/kserve.yaml, held against the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.app import create_app
from service.settings import Settings
from service.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("cpu", "gpu")
VARIANTS = list(product(OVERLAYS, (False, True), (False, True)))
"""Every overlay with and without KEDA, bundles from the image or from a volume."""
CUSTOM = {"ScaledObject", "ServiceMonitor"}
"""Kinds that Kubernetes does not have by itself."""
SUPERVISOR_S = 10
"""Before the supervisor kills what has not ended."""
Objects = dict[str, dict[str, Any]]
"""What is rendered, by kind."""


def find_kubectl() -> str:
    """Find a kubectl with a kustomize that has components; skips where there is none."""
    program = shutil.which("kubectl")
    if not program:
        pytest.skip("needs kubectl (Debian's package kubernetes-client)")
    command = [program, "version", "--client", "--output", "json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if not re.match(r"v[5-9]", json.loads(found).get("kustomizeVersion", "")):
        pytest.skip("needs a kubectl with kustomize 5")
    return program


@pytest.fixture(scope="module")
def render() -> Callable[[Path], Objects]:
    """Renders a folder; no kind is there twice."""
    kubectl = find_kubectl()

    def render(folder: Path) -> Objects:
        command = [kubectl, "kustomize", str(folder)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        objects = list(yaml.safe_load_all(text))
        by_kind = {one["kind"]: one for one in objects}
        assert len(objects) == len(by_kind)
        return by_kind

    return render


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def variant(
    request: pytest.FixtureRequest,
    render: Callable[[Path], Objects],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, bool, Objects]:
    """An overlay with other components, as its comment says: its name, whether from a volume."""
    overlay, keda, from_volume = request.param
    folder = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(MANIFESTS, folder)
    path = folder / "overlays" / overlay / "kustomization.yaml"
    content = yaml.safe_load(path.read_text())
    parts = ["keda"] * keda + ["volume"] * from_volume
    content["components"] = [f"../../components/{part}" for part in parts]
    path.write_text(yaml.safe_dump(content))
    return overlay, from_volume, render(path.parent)


@pytest.fixture(scope="module", params=OVERLAYS)
def shipped(request: pytest.FixtureRequest, render: Callable[[Path], Objects]) -> Objects:
    """An overlay as it ships."""
    return render(MANIFESTS / "overlays" / request.param)


def environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables that a container is given."""
    return {one["name"]: one["value"] for one in container["env"]}


def pod_of(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return pod


def container_of(objects: Objects) -> dict[str, Any]:
    (container,) = pod_of(objects)["containers"]
    assert isinstance(container, dict)
    return container


def test_kubernetes_accepts_every_variant(variant: tuple[str, bool, Objects]) -> None:
    """The strict schemas of the oldest version with a kustomize of 5 and of the newest."""
    for kind, manifest in variant[2].items():
        if kind not in CUSTOM:
            for version in ("1.27", kubernetes_validate.latest_version()):
                kubernetes_validate.validate(manifest, version, strict=True)


def test_the_service_starts_with_the_settings(
    variant: tuple[str, bool, Objects], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are known and in range; the port, the device and the bundles are those of the pod."""
    overlay, from_volume, objects = variant
    container = container_of(objects)
    for name, value in environment(container).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment()
    assert [settings.port] == [port["containerPort"] for port in container["ports"]]
    assert {"cpu": "cpu", "gpu": "cuda"}[overlay] == settings.device
    if from_volume:
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts[str(settings.bundles)]["readOnly"]
        claims = [v.get("persistentVolumeClaim", {}) for v in pod_of(objects)["volumes"]]
        name = objects["PersistentVolumeClaim"]["metadata"]["name"]
        assert {"claimName": name, "readOnly": True} in claims
    else:
        assert Settings().bundles == settings.bundles


def test_a_pod_has_time_to_drain(shipped: Objects) -> None:
    """Kubernetes kills no earlier than the service would have ended by itself."""
    pod, settings = pod_of(shipped), Settings()
    program, seconds = container_of(shipped)["lifecycle"]["preStop"]["exec"]["command"]
    assert "sleep" == program
    longest_s = int(seconds) + settings.drain_grace_s + settings.drain_timeout_s + SUPERVISOR_S
    assert longest_s < pod["terminationGracePeriodSeconds"]


def test_autoscalers_scale_the_deployment_on_a_metric_that_exists(
    variant: tuple[str, bool, Objects],
) -> None:
    """On waiting rows, one full batch for each worker, as both autoscalers put it."""
    _, _, objects = variant
    metrics, name = Metrics().render().decode(), objects["Deployment"]["metadata"]["name"]
    workers = int(container_of(objects)["resources"]["limits"]["cpu"])
    rows = workers * Settings().max_batch_rows
    if scaler := objects.get("HorizontalPodAutoscaler"):
        (metric,) = [one["pods"] for one in scaler["spec"]["metrics"]]
        asked, target = metric["metric"]["name"], metric["target"]["averageValue"]
        adapter = yaml.safe_load((MANIFESTS / "prometheus-adapter.yaml").read_text())
        (rule,) = adapter["rules"]["custom"]
        assert asked == rule["name"]["as"] == rule["seriesQuery"].partition("{")[0]
        least = scaler["spec"]["minReplicas"]
    else:
        scaler = objects["ScaledObject"]
        (trigger,) = scaler["spec"]["triggers"]
        query, target = trigger["metadata"]["query"], trigger["metadata"]["threshold"]
        (asked,) = re.findall(r"capsnet_\w+", query)
        found = dict(re.findall(r'(\w+)="(\w+)"', query))
        service = objects["Service"]["metadata"]
        assert {"job": service["name"], "namespace": service["namespace"]} == found
        least = scaler["spec"]["minReplicaCount"]
    assert f"\n{asked} " in metrics
    assert rows == int(target)
    assert name == scaler["spec"]["scaleTargetRef"]["name"]
    assert least > objects["PodDisruptionBudget"]["spec"]["maxUnavailable"]


# KServe


@pytest.fixture(scope="module")
def predictor() -> dict[str, Any]:
    """The pods of the InferenceService."""
    service, _ = yaml.safe_load_all((MANIFESTS.parent / "kserve.yaml").read_text())
    found: dict[str, Any] = service["spec"]["predictor"]
    return found


def test_kserve_starts_the_service(
    predictor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings are known and in range; probes are open routes of the protocol."""
    (container,) = predictor["containers"]
    for name, value in environment(container).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment()
    assert [settings.port] == [port["containerPort"] for port in container["ports"]]
    for probe, path in {"readinessProbe": "ready", "livenessProbe": "live"}.items():
        asked = container[probe]["httpGet"]
        assert {"path": f"/v2/health/{path}", "port": settings.port} == asked
        (route,) = [one for one in create_app(settings).routes if one.path == asked["path"]]  # type: ignore[attr-defined]
        assert "public" == getattr(route, "permission", None)
