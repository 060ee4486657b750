"""The supervisor's waits between the starts of a worker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from service.processes.options import Options
from service.processes.supervisor import Process, Supervisor


@pytest.mark.parametrize("failures", [0, 1, 600])
def test_the_wait_begins_anew_where_no_process_can_be_started(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often that was so, and although the last worker ended long ago."""
    starts = []

    def refuse(_: Supervisor, process: Process) -> None:
        starts.append(process)
        raise OSError("no process is left")

    monkeypatch.setattr(Supervisor, "_start", refuse)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handlers of tests stay
    supervisor = Supervisor(Options("127.0.0.1", 0, 1, "text", 1.0, 1.0, 1.0, 1.0), tmp_path)
    ended = Process(supervisor.config, supervisor.sockets, 0)
    ended.failures, ended.ended_at = failures, time.monotonic() - 100
    supervisor.processes.append(ended)
    supervisor.keep_subprocess_alive()
    supervisor.keep_subprocess_alive()
    for listener in supervisor.sockets:
        listener.close()
    assert 1 == len(starts)
