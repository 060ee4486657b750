"""What is deployed is what the code needs: systemd, Compose, monitoring, Kubernetes and KServe."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.app import create_app
from service.settings import Settings
from service.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "capsnet.service"


@pytest.fixture(scope="module")
def options() -> dict[str, str]:
    """The unit's options; none is given twice."""
    pairs = re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Every option is known and has a value that it may have."""
    program = shutil.which("systemd-analyze")
    if not program:
        pytest.skip("needs systemd-analyze (Debian's package systemd)")
    text = UNIT.read_text().replace("/opt/capsnet/.venv/bin/python", sys.executable)
    unit = tmp_path / UNIT.name
    unit.write_text(text)
    result = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in result.stderr.splitlines() if UNIT.name in line]
    assert (0, []) == (result.returncode, complaints), result.stderr


def test_systemd_waits_for_the_drain(options: dict[str, str]) -> None:
    """Longer than the service takes to stop by itself."""
    settings = Settings()
    assert int(options["TimeoutStopSec"]) > settings.drain_grace_s + settings.drain_timeout_s + 10


NAMES = {f"CAPSNET_{name.upper()}" for name in Settings.model_fields}
KEY_FILES = {"CAPSNET_API_KEYS_FILE", "CAPSNET_ADMIN_KEYS_FILE"}
FIXED = {"CAPSNET_HOST", "CAPSNET_PORT", "CAPSNET_DEVICE", "CAPSNET_BUNDLES", *KEY_FILES}
"""What docker-compose.yml decides."""
SERVICES = ["capsnet", "training", "prometheus", "grafana"]
COMMANDS = [["docker", "compose"], ["docker-compose"]]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return services


def find_compose() -> list[str]:
    """Docker Compose 2.24 or later, which knows !reset."""
    for command in COMMANDS:
        if not shutil.which(command[0]):
            continue
        result = subprocess.run(
            [*command, "version", "--short"], capture_output=True, text=True, check=False
        )
        version = tuple(map(int, re.findall(r"\d+", result.stdout)[:2]))
        if result.returncode == 0 and version >= (2, 24):
            return command
    pytest.skip("needs docker compose 2.24 or later")


def run_compose(command: list[str], *arguments: str, **environment: str) -> dict[str, Any]:
    """What Compose makes of its files."""
    output = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    services: dict[str, Any] = yaml.safe_load(output)["services"]
    return services


def test_every_setting_reaches_the_container(services: dict[str, Any]) -> None:
    """A setting of the environment or of .env is passed on, unless the file decides it."""
    environment = services["capsnet"]["environment"]
    ours = {name for name in environment if name.startswith("CAPSNET_")}
    assert NAMES == ours
    assert FIXED == {name for name in ours if environment[name] is not None}


def test_the_example_holds_every_setting_with_its_default() -> None:
    """Uncommented, .env.example changes nothing."""
    text = (ROOT / ".env.example").read_text()
    entries = dict(re.findall(r"^# (CAPSNET_\w+)=(.*)$", text, re.MULTILINE))
    assert NAMES - FIXED == entries.keys()
    assert all(name in text for name in FIXED)
    given = {name.removeprefix("CAPSNET_").lower(): value for name, value in entries.items()}
    values = {
        name: json.loads(value) if value.startswith("[") else value
        for name, value in given.items()
        if value
    }
    assert Settings() == Settings(**values)


@pytest.mark.parametrize("name", SERVICES)
def test_containers_get_no_more_than_they_need(name: str, services: dict[str, Any]) -> None:
    """Read-only root, no capabilities, no way to new privileges, a limit on memory."""
    service = services[name]
    assert service["init"]
    assert service["read_only"]
    assert ["ALL"] == service["cap_drop"]
    assert ["no-new-privileges:true"] == service["security_opt"]
    assert service["deploy"]["resources"]["limits"]["memory"]
    assert service["restart"] in {"unless-stopped", "on-failure:10"}


def test_compose_accepts_the_file(services: dict[str, Any]) -> None:
    """What a reader of YAML takes for sound is sound to Compose too."""
    command = find_compose()
    accepted = run_compose(command, "--profile", "monitoring", "--profile", "training", "config")
    assert services.keys() == accepted.keys()


def test_the_override_needs_no_gpu() -> None:
    """No device is reserved and the CPU image is taken; settings still pass."""
    accepted = run_compose(
        find_compose(),
        *("--profile", "training", "--file", "docker-compose.yml"),
        *("--file", "docker-compose.cpu.yml", "config"),
        CAPSNET_THREADS="3",
    )
    for service in accepted.values():
        assert "reservations" not in service["deploy"]["resources"]
    assert "cpu" == accepted["capsnet"]["build"]["target"]
    environment = accepted["capsnet"]["environment"]
    assert ("cpu", "3") == (environment["CAPSNET_DEVICE"], environment["CAPSNET_THREADS"])


MONITORING = ROOT / "docker" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "capsnet.json"


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """Names of all series that the service exposes once it has answered something."""
    metrics = Metrics()
    metrics.record_models("CPU", ["mnist"])
    metrics.record_request("POST", "/classify", 200, {"queue": 0.1, "total": 0.1})
    metrics.record_rejection("busy")
    metrics.record_batch(("mnist", "encode"), 1, 0.1)
    families = text_string_to_metric_families(metrics.render().decode())
    return {sample.name for family in families for sample in family.samples}


def rules() -> dict[str, str]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return panels


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*shown, *rules().values()]


@pytest.mark.parametrize("expression", expressions())
def test_only_metrics_that_exist_are_asked_for(expression: str, exposed: set[str]) -> None:
    """A panel or an alert over a metric that was renamed would be silent for ever."""
    names = set(re.findall(r"\b(?:capsnet_\w+|up)\b", expression))
    assert names
    assert names <= exposed | {"up"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ],
    ids=" ".join,
)
def test_prometheus_accepts_its_files(arguments: list[str]) -> None:
    """The configuration is sound, and the rules fire when they should."""
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("needs promtool (Debian's package prometheus)")
    result = subprocess.run(
        [promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert 0 == result.returncode, result.stdout + result.stderr


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
    import kubernetes_validate  # noqa: PLC0415  takes seconds

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
