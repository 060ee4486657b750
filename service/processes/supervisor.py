"""The supervisor opens the port, and starts, watches and replaces workers. It extends uvicorn's."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Literal, NamedTuple

import uvicorn
from uvicorn.supervisors import multiprocess

from service.processes.folder import Revisions

log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STARTUP_TIMEOUT_S = 120.0
"""A worker may take this long until its event loop turns; it loads bundles afterwards."""
UNREADY_TIMEOUT_S = 300.0
"""The service ends if no worker is ready for this long, at the start or later."""
_TICK_S = 0.5
"""uvicorn calls `keep_subprocess_alive` once in this many seconds."""
_FIRST_WAIT_S, _MAX_WAIT_S = 0.1, 30.0
"""The shortest and longest wait between the end of a worker and the start of its replacement."""
_SOUND_S = 60.0
"""Once a worker has lived for this long, earlier failures of its slot do not count."""
_BACKLOG = 2048
"""So many connections wait to be accepted."""
_MARGIN_S = 10.0
"""A worker that has not ended this long after its own limits is killed."""


class Options(NamedTuple):
    """The supervisor's part of `service.settings.Settings`."""

    host: str
    port: int
    grpc_port: int
    workers: int
    log_format: Literal["text", "json"]
    heartbeat_timeout_s: float
    drain_grace_s: float
    drain_timeout_s: float


class Process(multiprocess.Process):
    """The supervisor's record of a worker; `target` runs in the worker.

    The worker sends True twice a second while its event loop turns, and says why it ends. Seconds
    are counted in ticks of the supervisor: a machine that was frozen is no reason to end a worker.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], slot: int, failures: int = 0
    ) -> None:
        super().__init__(config, sockets)
        self.slot = slot
        self.failures = failures
        """Ends of workers of this slot, without one that lived for `_SOUND_S` in between."""
        self.lived_s = self.silent_s = 0.0
        """Seconds since its start, and since it last sent something."""
        self.has_begun = False
        """Whether it has sent anything; from then on, it takes signals."""
        self.reason: str | None = None
        """Why it ends, or was killed."""
        self.replaced_at: float | None = None
        """When another starts in its place, once it has ended, in seconds of `time.monotonic`."""

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in the worker's process."""
        from service.processes.worker import create_server  # noqa: PLC0415  not in the supervisor

        os.setsid()  # a terminal's signals are for the supervisor alone
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        create_server(self.config.workers, self.slot, self.tell).run(sockets)

    def tell(self, message: str | bool) -> None:  # noqa: FBT001  a message is no flag
        """Send a message from the worker, unless earlier ones fill the pipe."""
        if select.select([], [self.child_conn], [], 0)[1]:
            self.child_conn.send(message)

    def read(self) -> None:
        """Read the worker's messages."""
        while self.parent_conn.poll():
            message = self.parent_conn.recv()
            self.has_begun, self.silent_s = True, 0.0
            if isinstance(message, str):
                self.reason = message

    def kill_if_hung(self, heartbeat_timeout_s: float) -> None:
        """Kill a worker that has been silent for too long."""
        self.lived_s += _TICK_S
        self.silent_s += _TICK_S
        self.read()
        limit_s = heartbeat_timeout_s if self.has_begun else STARTUP_TIMEOUT_S
        if self.silent_s > limit_s:
            self.reason = f"its event loop has not turned for {limit_s:g} s"
            self.process.kill()

    def record_end(self) -> float:
        """Record that it has ended. Return the seconds until another starts in its place."""
        self.failures = 1 if self.lived_s > _SOUND_S else self.failures + 1
        self.lived_s = 0.0
        wait_s: float = min(_FIRST_WAIT_S * 4.0 ** min(self.failures - 1, 5), _MAX_WAIT_S)
        self.replaced_at = time.monotonic() + wait_s
        return wait_s


class Supervisor(multiprocess.Multiprocess):
    """uvicorn's supervisor with growing waits, start-up limits and a drain.

    SIGTERM drains the workers; SIGHUP has them reload the bundles. One that hangs is killed and one
    that ends is replaced. The service fails only if no worker can start, or none was ready for
    UNREADY_TIMEOUT_S, which is the same at the start and later.

    Raises:
        OSError: the port, or that of gRPC, cannot be opened.
    """

    processes: list[Process]  # type: ignore[assignment]  # ours

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._revisions = Revisions(folder, options.workers)
        self._unready_s = 0.0
        """Seconds since the start, or since a worker was ready."""
        self._was_ready = False
        """Whether a worker ever was."""
        self._has_terminal = has_terminal()
        self._failure: str | None = None
        host, port, workers = options.host, options.port, options.workers
        self.reserved = _bind(host, options.grpc_port, for_grpc=True) if options.grpc_port else []
        """Sockets that keep the port of gRPC for this service's workers."""
        listeners = _bind(host, port)
        log.info("listening on http://%s:%d with %d workers", host, port, workers)
        config = uvicorn.Config("", workers=workers, log_config=None, log_level="warning")
        super().__init__(config, listeners)

    def serve(self) -> str | None:
        """Serve until there is a reason to stop. Return the failure, if that is the reason.

        Raises:
            OSError: a worker cannot be started.
        """
        try:
            self.run()
        finally:
            for process in self.processes:
                process.process.kill()
        return self._failure

    def init_processes(self) -> None:
        """Start all workers."""
        for slot in range(self.processes_num):
            self.processes.append(self._start(slot))

    def keep_subprocess_alive(self) -> None:
        """Kill workers that hang, and replace those that have ended.

        uvicorn calls this twice a second.
        """
        self._unready_s += _TICK_S
        for slot, process in enumerate(self.processes):
            try:
                self._watch(slot, process)
            except OSError as error:  # no descriptor or process is left
                log.error("a process cannot be started: %s", error)  # noqa: TRY400
                if process.replaced_at is not None:
                    process.record_end()
        if self._unready_s > UNREADY_TIMEOUT_S:
            self._fail(f"no worker was ready for {UNREADY_TIMEOUT_S:g} s")

    def _watch(self, slot: int, process: Process) -> None:
        if self._revisions.served_by(slot).bundles:
            self._unready_s, self._was_ready = 0.0, True
        if process.replaced_at is None:
            process.kill_if_hung(self._options.heartbeat_timeout_s)
            if not process.process.is_alive():
                self._record_end(process)
        elif time.monotonic() >= process.replaced_at and not self.should_exit.is_set():
            self.processes[slot] = self._start(slot, process.failures)

    def _record_end(self, process: Process) -> None:
        """Record the end of a worker, and decide whether the service has failed."""
        process.join()
        process.read()
        self._revisions.clear(process.slot)
        reason = process.reason or f"it ended with code {process.exitcode}"
        wait_s = process.record_end()
        log.error("worker %s: %s; another starts in %g s", process.pid, reason, wait_s)
        if not self._was_ready and all(process.failures for process in self.processes):
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self.should_exit.set()

    def _start(self, slot: int, failures: int = 0) -> Process:
        """Start a worker, which takes signals once it has handlers for them."""
        process = Process(self.config, self.sockets, slot, failures)
        resource_tracker.ensure_running()  # Python starts it with a worker, and unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process

    # Signals

    def handle_hup(self) -> None:
        """Reload, or end if the terminal was closed."""
        if self._has_terminal and not has_terminal():
            self.handle_term()
        else:
            self._revisions.request_reload()

    def handle_ttin(self) -> None:
        """Ignore the signal: the number of workers is a setting."""

    handle_ttou = handle_ttin

    # The end

    def terminate_all(self) -> None:
        """Drain the workers; one that has not begun is ended at once."""
        log.info("draining: still accepting requests for %g s", self._options.drain_grace_s)
        for listener in self.sockets:
            listener.close()  # else this process would keep what waits there
        for process in self.processes:
            process.read()
            if not process.has_begun or process.replaced_at is not None:
                process.process.kill()
                process.join()
        self.processes = [process for process in self.processes if process.process.is_alive()]
        for process in self.processes:
            process.process.terminate()

    def join_all(self) -> None:
        """Wait for the drain within its limits.

        A second SIGTERM or SIGINT ends it at once, with code 0.
        """
        options, waited_s = self._options, 0.0
        limit_s = options.drain_grace_s + options.drain_timeout_s + _MARGIN_S
        while any(process.process.is_alive() for process in self.processes):
            time.sleep(_TICK_S / 10)
            waited_s += _TICK_S / 10
            if self._is_told_again or waited_s > limit_s:
                for process in self.processes:
                    process.process.kill()
        for process in self.processes:
            process.join()
            process.read()
            if process.exitcode and not self._is_told_again:
                self._fail(process.reason or "a worker had to be killed")

    @property
    def _is_told_again(self) -> bool:
        """Whether a second SIGTERM or SIGINT has come; other signals are in the queue too."""
        return not {signal.SIGTERM, signal.SIGINT}.isdisjoint(self.signal_queue)


def _bind(host: str, port: int, *, for_grpc: bool = False) -> list[socket.socket]:
    """Open sockets on all addresses of a host. They listen or, for gRPC, only keep the port.

    Workers share the port of gRPC (SO_REUSEPORT), and so would another service of this user: calls
    would be divided between the two. Binding fails while any other socket has the port. The options
    change afterwards, so that the workers may bind it too, and no other reservation.

    Raises:
        OSError: the port is taken.
    """
    bound = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in addresses:
            if not for_grpc:
                bound.append(socket.create_server(address, family=family, backlog=_BACKLOG))
                continue
            bound.append(opened := socket.socket(family))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        for opened in bound:
            opened.close()
        purpose = " for gRPC" if for_grpc else ""
        raise OSError(f"cannot listen on {host}:{port}{purpose}: {error}") from error
    return bound


def has_terminal() -> bool:
    """Whether standard input is a terminal that is still open."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True
