from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import VERSION
from service.inference.batcher import BatchReport
from service.inference.engine import Engine, Loaded
from service.telemetry.metrics import SHARED_FOLDER, Metrics


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
    made = Metrics(lambda: 7)
    made.note_engine(Engine(None, Loaded({"mnist": None}, "CPUExecutionProvider")))  # type: ignore[arg-type,dict-item]
    made.note_request("POST", "/classify", 200, {"queue": 0.003, "total": 0.02})
    made.begin_request()
    made.note_rejection("busy")
    made.note_batch(BatchReport(("mnist", "encode"), 12, 0.04, padding=4))
    return made


@pytest.mark.parametrize(
    ("sample", "labels", "expected"),
    [
        ("capsnet_requests_total", {"method": "POST", "route": "/classify", "status": "200"}, 1),
        ("capsnet_request_seconds_sum", {"method": "POST", "route": "/classify"}, 0.02),
        ("capsnet_stage_seconds_sum", {"stage": "queue"}, 0.003),
        ("capsnet_rejections_total", {"reason": "busy"}, 1),
        ("capsnet_batch_rows_sum", {"model": "mnist", "graph": "encode"}, 12),
        ("capsnet_batch_seconds_sum", {"model": "mnist", "graph": "encode"}, 0.04),
        ("capsnet_padding_rows_total", {"model": "mnist", "graph": "encode"}, 4),
        ("capsnet_waiting_rows", {}, 7),
        ("capsnet_requests_in_flight", {}, 1),
        ("capsnet_build_info", {"version": VERSION}, 1),
        ("capsnet_provider_info", {"provider": "CPUExecutionProvider"}, 1),
    ],
)
def test_what_is_noted_can_be_read(
    metrics: Metrics, sample: str, labels: dict[str, str], expected: float
) -> None:
    """Each metric counts what it says, under the documented name."""
    assert expected == pytest.approx(read(metrics, sample, **labels))


def test_documented_metrics_are_the_real_ones(metrics: Metrics) -> None:
    """The page of metrics lists every metric, and no other."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(?:capsnet|process)_.*? \|", page, flags=re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", "".join(rows)))
    families = text_string_to_metric_families(metrics.render().decode())
    real = {one.name + ("_total" if one.type == "counter" else "") for one in families}
    assert documented == {name for name in real if not name.endswith("_created")}


def test_the_process_can_be_watched(metrics: Metrics) -> None:
    """Memory, CPU time, open files and start, of this process."""
    pid = str(os.getpid())
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "start_time_seconds"):
        assert 0 < read(metrics, f"process_{name}", pid=pid)


WORKER = """
import sys
from service.telemetry.metrics import Metrics
from service.inference.batcher import BatchReport
metrics = Metrics(lambda: 7)
metrics.begin_request()
metrics.begin_request()
metrics.end_request()
metrics.note_request("POST", "/classify", 200, {"total": 0.02})
metrics.note_batch(BatchReport(("mnist", "encode"), 12, 0.04))
print(flush=True)
sys.stdin.readline()
print(metrics.render().decode())
"""


def test_each_worker_tells_the_sum_of_all(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Counters, histograms and gauges are added up; each process is told by its number."""
    environment = {**os.environ, SHARED_FOLDER: str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER],
            cwd=pytestconfig.rootpath,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout
        worker.stdout.readline()
    page, _ = workers[0].communicate("\n")
    workers[1].communicate("\n")
    samples = {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }
    totals = {name: value for (name, _), value in samples.items()}
    assert 2 == totals["capsnet_requests_total"]
    assert 24 == totals["capsnet_batch_rows_sum"]
    assert 14 == totals["capsnet_waiting_rows"]
    assert 2 == totals["capsnet_requests_in_flight"]
    assert 1 == totals["capsnet_build_info"]
    for worker in workers:
        assert 0 < samples["process_resident_memory_bytes", frozenset({("pid", str(worker.pid))})]
