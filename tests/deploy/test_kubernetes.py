"""The manifests in deploy/kubernetes, as kustomize renders them, held against the code."""

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
from service.processes.snapshots import MAX_BUNDLES_BYTES, SPARE_BYTES
from service.settings import Settings, SettingsError
from service.telemetry.metrics import Metrics
from tests.deploy.pod import MIB, environment, parse_quantity, shutdown_s, stop_wait_s

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("cpu", "gpu")
VARIANTS = list(product(OVERLAYS, ("hpa", "keda"), (False, True)))
"""Every overlay with every autoscaler, bundles from the image or from a volume."""
CUSTOM = {"ScaledObject", "ServiceMonitor"}
"""Kinds that Kubernetes does not have by itself."""
RESTRICTED = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
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
    overlay, autoscaler, from_volume = request.param
    folder = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(MANIFESTS, folder)
    path = folder / "overlays" / overlay / "kustomization.yaml"
    content = yaml.safe_load(path.read_text())
    parts = [autoscaler, *(["volume"] if from_volume else [])]
    content["components"] = [f"../../components/{part}" for part in parts]
    path.write_text(yaml.safe_dump(content))
    return overlay, from_volume, render(path.parent)


@pytest.fixture(scope="module", params=OVERLAYS)
def shipped(request: pytest.FixtureRequest, render: Callable[[Path], Objects]) -> Objects:
    """An overlay as it ships."""
    return render(MANIFESTS / "overlays" / request.param)


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


def test_a_variant_holds_one_autoscaler_and_no_number_of_replicas(
    variant: tuple[str, bool, Objects],
) -> None:
    """Applying it again does not undo what the autoscaler chose; two would fight."""
    _, from_volume, objects = variant
    assert 1 == len({"HorizontalPodAutoscaler", "ScaledObject"} & objects.keys())
    assert "replicas" not in objects["Deployment"]["spec"]
    assert from_volume == ("PersistentVolumeClaim" in objects)


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


def test_the_claim_can_be_filled() -> None:
    """A pod that the namespace admits writes to the claim that the service's pods read."""
    pod = yaml.safe_load((MANIFESTS / "fill.yaml").read_text())
    for version in ("1.27", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(pod, version, strict=True)
    claim = yaml.safe_load(
        (MANIFESTS / "components" / "volume" / "persistentvolumeclaim.yaml").read_text()
    )
    (volume,) = pod["spec"]["volumes"]
    assert {"claimName": claim["metadata"]["name"]} == volume["persistentVolumeClaim"]
    assert ["ReadWriteMany"] == claim["spec"]["accessModes"]
    (container,) = pod["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert not mount.get("readOnly")
    assert RESTRICTED == container["securityContext"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    copied = f"cp bundles/shapes {pod['metadata']['name']}:{mount['mountPath']}/shapes"
    assert copied in page
    assert "deploy/kubernetes/fill.yaml" in page


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_page_on_own_bundles_sets_the_default_model(
    render: Callable[[Path], Objects],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overlay: str,
) -> None:
    """Its lines, added to an overlay with the volume, make a service of one's own bundle."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    added = yaml.safe_load(text)
    folder = Path(shutil.copytree(MANIFESTS, tmp_path / "kubernetes"))
    path = folder / "overlays" / overlay / "kustomization.yaml"
    content = yaml.safe_load(path.read_text())
    content["components"] = [*content["components"], "../../components/volume"]
    content["images"] = added["images"]
    content["patches"] += added["patches"]
    path.write_text(yaml.safe_dump(content))
    container = container_of(render(path.parent))
    for name, value in environment(container).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment()
    assert ("shapes", Path("/bundles")) == (settings.default_model, settings.bundles)
    assert "registry.example.org/capsnet-shapes:1" == container["image"]


def test_links_of_services_are_off(shipped: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service of that name would set variables with which the service does not start."""
    assert pod_of(shipped)["enableServiceLinks"] is False
    prefix = shipped["Service"]["metadata"]["name"].upper()
    monkeypatch.setenv(f"{prefix}_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(SettingsError, match="SERVICE_HOST"):
        Settings.from_environment()


def test_processes_of_killed_workers_are_reaped(shipped: Objects) -> None:
    """As Compose's `init`: the supervisor as first process would leave them as zombies."""
    assert pod_of(shipped)["shareProcessNamespace"]


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_ask_open_routes(shipped: Objects, probe: str) -> None:
    """Each is a route that needs no key, at the port that the container names."""
    container = container_of(shipped)
    asked = container[probe]["httpGet"]
    assert asked["path"] == {"livenessProbe": "/livez"}.get(probe, "/readyz")
    (route,) = [one for one in create_app(Settings()).routes if one.path == asked["path"]]  # type: ignore[attr-defined]
    assert "public" == getattr(route, "permission", None)
    assert asked["port"] in {port["name"] for port in container["ports"]}


def test_a_pod_has_time_to_drain(shipped: Objects) -> None:
    """Kubernetes kills no earlier than the service would have ended by itself."""
    assert shutdown_s(container_of(shipped)) < stop_wait_s(pod_of(shipped))


def test_a_pod_may_do_nothing(shipped: Objects) -> None:
    """What the namespace's `restricted` asks for, a read-only root, and no token of the cluster."""
    pod = pod_of(shipped)
    assert RESTRICTED == container_of(shipped)["securityContext"]
    assert not pod["automountServiceAccountToken"]
    context = pod["securityContext"]
    user = re.search(r"^USER (.+)$", (ROOT / "docker/service.Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert user[1] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert (True, "RuntimeDefault") == (context["runAsNonRoot"], context["seccompProfile"]["type"])
    labels = shipped["Namespace"]["metadata"]["labels"]
    assert "restricted" == labels["pod-security.kubernetes.io/enforce"]


def measured_mib(row: str) -> int:
    """What docs/how-to/scale.md says a process takes."""
    page = (ROOT / "docs" / "how-to" / "scale.md").read_text()
    found = re.search(rf"^\| {row} \| (\d+) MiB ", page, re.MULTILINE)
    assert found
    return int(found[1])


def test_memory_holds_what_was_measured(render: Callable[[Path], Objects]) -> None:
    """Requests hold the workers; limits also bodies, decoding of large pictures and /tmp."""
    container = container_of(render(MANIFESTS / "overlays" / "cpu"))
    requests, limits = (container["resources"][name] for name in ("requests", "limits"))
    workers, settings = int(parse_quantity(limits["cpu"])), Settings()
    used = measured_mib("supervisor") + workers * (measured_mib("each worker") + 50 + 15)
    assert used * MIB < parse_quantity(requests["memory"])
    decoding = workers * (settings.decode_processes // 2) * 16 * settings.max_pixels
    most = used * MIB + workers * settings.max_waiting_bytes + decoding
    assert most < parse_quantity(limits["memory"]) < 2 * most


def test_temporary_files_have_the_room_that_bundles_may_take(shipped: Objects) -> None:
    """A pod whose folder grows beyond its limit is evicted: two copies, and metrics, fit."""
    volumes = shipped["Deployment"]["spec"]["template"]["spec"]["volumes"]
    (volume,) = [volume for volume in volumes if "emptyDir" in volume]
    room = parse_quantity(volume["emptyDir"]["sizeLimit"])
    assert 2 * MAX_BUNDLES_BYTES + SPARE_BYTES < room


def test_selectors_find_the_pods(shipped: Objects) -> None:
    """Every selector matches the labels of the pods or of the Service."""
    labels = shipped["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (spread,) = pod_of(shipped)["topologySpreadConstraints"]
    for selector in (
        shipped["Deployment"]["spec"]["selector"]["matchLabels"],
        shipped["Service"]["spec"]["selector"],
        shipped["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        shipped["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
    ):
        assert selector
        assert selector.items() <= labels.items()
    monitored = shipped["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitored
    assert monitored.items() <= shipped["Service"]["metadata"]["labels"].items()


def test_ports_lead_to_the_container(shipped: Objects) -> None:
    """From Prometheus by way of the Service, and through the network policy."""
    (port,) = container_of(shipped)["ports"]
    (of_service,) = shipped["Service"]["spec"]["ports"]
    (scraped,) = shipped["ServiceMonitor"]["spec"]["endpoints"]
    (rule,) = shipped["NetworkPolicy"]["spec"]["ingress"]
    assert of_service["name"] == scraped["port"]
    assert {port["name"]} == {of_service["targetPort"], *(one["port"] for one in rule["ports"])}
    assert scraped["path"] in {one.path for one in create_app(Settings()).routes}  # type: ignore[attr-defined]


def test_prometheus_knows_the_pods_by_the_job_of_the_alerts(shipped: Objects) -> None:
    """The operator names the job after the Service; the alerts that ship ask for that job."""
    alerts = (ROOT / "docker" / "monitoring" / "alerts.yml").read_text()
    assert {shipped["Service"]["metadata"]["name"]} == set(re.findall(r'job="(\w+)"', alerts))


def test_autoscalers_scale_the_deployment_on_a_metric_that_exists(
    variant: tuple[str, bool, Objects],
) -> None:
    """On waiting rows, one full batch for each worker, as both autoscalers put it."""
    _, _, objects = variant
    metrics, name = Metrics().render().decode(), objects["Deployment"]["metadata"]["name"]
    workers = int(parse_quantity(container_of(objects)["resources"]["limits"]["cpu"]))
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


def test_overlays_take_the_images_that_make_builds(render: Callable[[Path], Objects]) -> None:
    """`make image` and `make image TARGET=gpu`."""
    makefile = (ROOT / "Makefile").read_text()
    name = re.search(r"^IMAGE \?= (.+):\$\(TARGET\)$", makefile, re.MULTILINE)
    assert name
    for overlay in OVERLAYS:
        container = container_of(render(MANIFESTS / "overlays" / overlay))
        assert f"{name[1]}:{overlay}" == container["image"]


def test_the_gpu_overlay_takes_one_gpu(render: Callable[[Path], Objects]) -> None:
    """Its pods are let onto tainted nodes, and a rollout needs no GPU that is not there."""
    objects = render(MANIFESTS / "overlays" / "gpu")
    assert 1 == container_of(objects)["resources"]["limits"]["nvidia.com/gpu"]
    assert "nvidia.com/gpu" in {one["key"] for one in pod_of(objects)["tolerations"]}
    assert 0 == objects["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
