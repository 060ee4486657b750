from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry import FOLDER_VARIABLE
from service.telemetry.metrics import Metrics


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
    made.record_models("CPUExecutionProvider", ["mnist"])
    made.record_request("POST", "/classify", 200, {"queue": 0.003, "total": 0.02})
    made.begin_request()
    made.record_rejection("busy")
    made.record_batch(("mnist", "encode"), 12, 0.04)
    return made


def test_documented_metrics_are_the_real_ones(metrics: Metrics) -> None:
    """The page of metrics lists every metric, and no other."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(?:capsnet|process)_.*? \|", page, flags=re.MULTILINE)
    documented = set(re.findall(r"`(\w+)`", "".join(rows)))
    families = text_string_to_metric_families(metrics.render().decode())
    real = {one.name + ("_total" if one.type == "counter" else "") for one in families}
    assert documented == {name for name in real if not name.endswith("_created")}


WORKER = """
import sys
from pathlib import Path
from service.processes.folder import Revision, Revisions
from service.telemetry.metrics import Metrics, write_as
status, slot = Revisions(Path(sys.argv[1]), workers=2), int(sys.argv[2])
write_as(slot)
metrics = Metrics(status.count_workers)
status.report(slot, Revision("copy", "keys"))
metrics.begin_request()
metrics.begin_request()
metrics.end_request(7)
metrics.record_request("POST", "/classify", 200, {"total": 0.02})
metrics.record_batch(("mnist", "encode"), 12, 0.04)
print(flush=True)
sys.stdin.readline()
print(metrics.render().decode())
"""


class Workers:
    """Processes that share a folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, FOLDER_VARIABLE: str(folder)}
        self._root = root

    def start(self, slot: int) -> subprocess.Popen[str]:
        """Start one, and wait until it has counted."""
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self._folder), str(slot)],
            cwd=self._root,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        process.stdout.readline()
        return process


@pytest.fixture
def workers(tmp_path: Path, pytestconfig: pytest.Config) -> Workers:
    return Workers(tmp_path, pytestconfig.rootpath)


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }


def test_each_worker_tells_the_sum_of_all(workers: Workers) -> None:
    """Counters, histograms and gauges are added up."""
    started = [workers.start(slot) for slot in range(2)]
    found = samples(started[0].communicate("\n")[0])
    started[1].communicate("\n")
    totals = {name: value for (name, _), value in found.items()}
    assert 2 == totals["capsnet_requests_total"]
    assert 24 == totals["capsnet_batch_rows_sum"]
    assert 14 == totals["capsnet_waiting_rows"]
    assert 2 == totals["capsnet_requests_in_flight"]
    assert 2 == found["capsnet_workers", frozenset({("state", "ready")})]
