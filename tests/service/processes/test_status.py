from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.processes.status import Counts, Serving, Status


@pytest.fixture
def status(tmp_path: Path) -> Status:
    return Status(tmp_path, workers=2)


def test_workers_that_report_are_ready(status: Status) -> None:
    """Each is known by its slot until that is cleared."""
    assert [] == status.serving
    status.report(0, "a")
    status.report(1, "b")
    assert [Serving(os.getpid(), "a"), Serving(os.getpid(), "b")] == status.serving
    status.clear(0)
    assert [Serving(os.getpid(), "b")] == status.serving


def test_what_became_of_workers_is_counted(status: Status) -> None:
    """Nothing is counted before the first end."""
    assert Counts(wanted=2, ready=0, restarted=0, killed=0) == status.counts
    status.report(1, "a")
    status.count_ends(restarted=3, killed=1)
    assert Counts(wanted=2, ready=1, restarted=3, killed=1) == status.counts


def test_one_worker_takes_a_request(status: Status) -> None:
    """However often it was made before."""
    assert not status.wants_reload
    status.request_reload()
    status.request_reload()
    assert status.wants_reload
    assert [True, False] == [status.take_request(), status.take_request()]
