from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.processes.registry import Counts, ReadyWorker, WorkerRegistry


@pytest.fixture
def registry(tmp_path: Path) -> WorkerRegistry:
    return WorkerRegistry(tmp_path, workers=2)


def test_workers_that_report_are_ready(registry: WorkerRegistry) -> None:
    """Each is known by its slot until that is cleared."""
    assert [] == registry.ready_workers
    registry.report(0, "a", "k")
    registry.report(1, "b", "k")
    first, second = (ReadyWorker(os.getpid(), bundles, "k") for bundles in ("a", "b"))
    assert [first, second] == registry.ready_workers
    registry.clear(0)
    assert [second] == registry.ready_workers


def test_what_became_of_workers_is_counted(registry: WorkerRegistry) -> None:
    """Nothing is counted before the first end."""
    assert Counts(wanted=2, ready=0, restarted=0, killed=0) == registry.counts
    registry.report(1, "a", "k")
    registry.count_ends(restarted=3, killed=1)
    assert Counts(wanted=2, ready=1, restarted=3, killed=1) == registry.counts


def test_one_worker_takes_a_request(registry: WorkerRegistry) -> None:
    """However often it was made before."""
    assert not registry.wants_reload
    registry.request_reload()
    registry.request_reload()
    assert registry.wants_reload
    assert [True, False] == [registry.take_request(), registry.take_request()]
