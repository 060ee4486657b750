from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.inference.batcher import BatchReport
from service.telemetry.metrics import Metrics

MONITORING = Path(__file__).parents[2] / "docker" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "capsnet.json"


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """Names of all series that the service exposes once it has answered something."""
    metrics = Metrics()
    metrics.record_models("CPU", ["mnist"])
    metrics.record_request("POST", "/classify", 200, {"queue": 0.1, "total": 0.1})
    metrics.record_rejection("busy")
    metrics.record_batch(BatchReport(("mnist", "encode"), 1, 0.1))
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
