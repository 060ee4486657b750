from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics
from service.waiting import BatchReport


def read(metrics: Metrics, sample: str, **labels: str) -> float:
    """The value of one sample."""
    families = text_string_to_metric_families(metrics.render().decode())
    values = [
        one.value
        for family in families
        for one in family.samples
        if one.name == sample and labels.items() <= one.labels.items()
    ]
    assert len(values) == 1, f"{sample} {labels}: {values}"
    return values[0]


@pytest.fixture
def metrics() -> Metrics:
    """A registry with something to read in every metric."""
    made = Metrics()
    made.watch(waiting_rows=lambda: 7, provider="CPUExecutionProvider", models="mnist")
    made.note_request("/classify", 200, 0.02)
    made.note_stage("queue", 0.003)
    made.note_rejection("busy")
    made.note_batch(BatchReport(("mnist", "encode"), 12, 0.04, padding=4))
    return made


@pytest.mark.parametrize(
    ("sample", "labels", "expected"),
    [
        ("capsnet_requests_total", {"route": "/classify", "status": "200"}, 1),
        ("capsnet_request_seconds_sum", {"route": "/classify"}, 0.02),
        ("capsnet_stage_seconds_sum", {"stage": "queue"}, 0.003),
        ("capsnet_rejections_total", {"reason": "busy"}, 1),
        ("capsnet_batch_rows_sum", {"model": "mnist", "graph": "encode"}, 12),
        ("capsnet_batch_seconds_sum", {"model": "mnist", "graph": "encode"}, 0.04),
        ("capsnet_padding_rows_total", {"model": "mnist", "graph": "encode"}, 4),
        ("capsnet_waiting_rows", {}, 7),
        ("capsnet_provider_info", {"provider": "CPUExecutionProvider"}, 1),
    ],
)
def test_what_is_noted_can_be_read(
    metrics: Metrics, sample: str, labels: dict[str, str], expected: float
) -> None:
    """Each metric counts what it says, under the documented name."""
    assert expected == pytest.approx(read(metrics, sample, **labels))


def test_documented_metrics_are_the_real_ones(metrics: Metrics) -> None:
    """The operations page lists every metric, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    documented = set(re.findall(r"^\| `(capsnet_\w+)`", page, flags=re.MULTILINE))
    families = text_string_to_metric_families(metrics.render().decode())
    suffix = {"counter": "_total", "info": "_info"}
    real = {
        re.sub(r"_created$", "", one.name) + suffix.get(one.type, "")
        for one in families
        if not one.name.endswith("_created")
    }
    assert documented == {name.replace("_info_info", "_info") for name in real}
