"""The supervisor's waits, its ports, and what its workers tell it."""

from __future__ import annotations

import math
import socket
import threading
from pathlib import Path

import pytest
import uvicorn

from service.processes.folder import Revision, Revisions
from service.processes.supervisor import Options, Process, Supervisor

OPTIONS = Options(
    host="127.0.0.1",
    port=0,
    grpc_port=0,
    workers=1,
    log_format="text",
    heartbeat_timeout_s=1.0,
    drain_grace_s=1.0,
    drain_timeout_s=1.0,
)


@pytest.mark.parametrize("ready_ticks", [0, 1])
def test_a_worker_may_load_for_the_same_time_at_the_start_and_later(
    ready_ticks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service ends once no worker was ready for that time, which passes twice a second."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handlers of tests stay
    monkeypatch.setattr("service.processes.supervisor.UNREADY_TIMEOUT_S", 4.0)
    supervisor = Supervisor(OPTIONS, tmp_path)
    worker = Process(supervisor.config, supervisor.sockets, 0)
    worker.replaced_at = math.inf
    supervisor.processes.append(worker)
    revisions, ticks = Revisions(tmp_path, workers=1), 0
    revisions.report(0, Revision("copy", "keys"))
    while not supervisor.should_exit.is_set():
        if ticks == ready_ticks:
            revisions.clear(0)
        supervisor.keep_subprocess_alive()
        ticks += 1
    for listener in supervisor.sockets:
        listener.close()
    assert ready_ticks + 4.0 / 0.5 + 1 == ticks


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_of_grpc_that_is_taken_refuses_the_start(host: str, tmp_path: Path) -> None:
    """Whether it is another service's that starts, or one whose workers listen already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    options = OPTIONS._replace(host=host, grpc_port=port)
    first = Supervisor(options, tmp_path)
    with pytest.raises(OSError, match=f"cannot listen on {host}:{port} for gRPC"):
        Supervisor(options, tmp_path)
    with socket.socket(family) as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.bind((host, port))
        worker.listen()
        with pytest.raises(OSError, match="for gRPC"):
            Supervisor(options, tmp_path)
    for opened in (*first.sockets, *first.reserved):
        opened.close()


def test_a_supervisor_that_does_not_read_holds_no_worker_up() -> None:
    """It is stopped, or waits for the reader of its log; workers answer requests all the same."""
    process = Process(uvicorn.Config(""), [], 0)

    def beat() -> None:
        for _ in range(10_000):
            process.tell(True)

    worker = threading.Thread(target=beat, daemon=True)
    worker.start()
    worker.join(10)
    assert not worker.is_alive()
    process.read()
    assert process.has_begun
