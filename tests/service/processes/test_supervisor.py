"""The supervisor's waits between the starts of a worker."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from service.processes.options import Options
from service.processes.supervisor import Process, Supervisor

OPTIONS = Options(
    host="127.0.0.1",
    port=0,
    grpc_port=0,
    workers=1,
    log_format="text",
    heartbeat_timeout_s=1.0,
    startup_timeout_s=1.0,
    unready_timeout_s=1.0,
    drain_grace_s=1.0,
    drain_timeout_s=1.0,
)


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
    supervisor = Supervisor(OPTIONS, tmp_path)
    ended = Process(supervisor.config, supervisor.sockets, 0)
    ended.failures, ended.ended_at = failures, time.monotonic() - 100
    supervisor.processes.append(ended)
    supervisor.keep_subprocess_alive()
    supervisor.keep_subprocess_alive()
    for listener in supervisor.sockets:
        listener.close()
    assert 1 == len(starts)


def test_a_port_of_grpc_that_is_taken_refuses_the_start(tmp_path: Path) -> None:
    """Whether it is another service's that starts, or one whose workers listen already."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = OPTIONS._replace(grpc_port=port)
    first = Supervisor(options, tmp_path)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port} for gRPC"):
        Supervisor(options, tmp_path)
    with socket.socket() as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind(("127.0.0.1", port))
        worker.listen()
        with pytest.raises(OSError, match="for gRPC"):
            Supervisor(options, tmp_path)
    for opened in (*first.sockets, *first.reserved):
        opened.close()
