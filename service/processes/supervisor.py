"""The supervisor opens the port, and starts, watches and replaces workers. It extends uvicorn's."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from functools import cached_property
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import uvicorn
from uvicorn.supervisors import multiprocess

from service.processes.folder import WorkerRegistry

if TYPE_CHECKING:
    from service.processes.server import Server

log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STARTUP_TIMEOUT_S = 120.0
"""A worker may take this long to report that it runs, before it loads bundles."""
UNREADY_TIMEOUT_S = 300.0
"""The service ends if no worker is ready for this long, at the start or later."""
_TICK_S = 0.5
"""uvicorn calls `keep_subprocess_alive` once in this many seconds."""
_FIRST_WAIT_S, _MAX_WAIT_S = 0.1, 30.0
"""The shortest and longest wait between the end of a worker and the start of its replacement."""
_STARTS = 5
"""A service that never had a ready worker fails after this many failed starts of each slot."""
_SOUND_S = 60.0
"""After being ready for this long, earlier failures of a slot do not count."""
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
    """The supervisor's record of a worker; `target`, `server` and `pong` run in the worker.

    The worker answers uvicorn's pings with whether it can answer requests, and says why it ends.
    Seconds are counted in ticks of the supervisor: a machine that was frozen is no reason to end a
    worker.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], slot: int) -> None:
        super().__init__(config, sockets)
        self.slot = slot
        self.failures = 0
        """Ends of workers of this slot, without one that was ready for long in between."""
        self.has_refused = False
        """Whether a worker of this slot has said why it cannot answer."""
        self.has_ponged = False
        """Whether it has answered a ping, or said that it is ready."""
        self.can_answer = False
        """Whether it can answer requests, as it last said."""
        self.was_ready = False
        """Whether it ever could."""
        self.ping_is_pending = False
        """Whether it has a ping to answer."""
        self.was_dropped = False
        """Whether, when the drain began, it had not started yet (then it was killed) or had already
        ended. Its exit code then does not count as a failure.
        """
        self.reason: str | None = None
        """Why it ends, or was killed."""
        self.silent_s = 0.0
        """Seconds since it last said whether it can answer."""
        self.ready_s = 0.0
        """Seconds in which it could answer."""
        self.ended_at: float | None = None
        """When the supervisor saw that it has ended, or last failed to start another, in seconds of
        `time.monotonic`.
        """

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve in the worker's process."""
        os.setsid()  # a terminal's signals are for the supervisor alone
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _ = self.server  # made before a thread asks for it
        super().target(sockets)

    @cached_property
    def server(self) -> Server:
        """The server, created in the worker's process."""
        from service.processes.worker import create_server  # noqa: PLC0415  not in the supervisor

        return create_server(self.config.workers, self.slot, self.child_conn.send)

    def pong(self) -> None:
        """Answer one ping."""
        self.child_conn.recv()
        self.child_conn.send(self.server.is_ready)

    def poll(self) -> None:
        """Read the worker's messages, and send it a ping."""
        self.silent_s += _TICK_S
        self.ready_s += _TICK_S * self.can_answer
        self.read()
        if not self.ping_is_pending:
            self.parent_conn.send(b"ping")
            self.ping_is_pending = True

    def read(self) -> None:
        """Read the worker's messages."""
        while self.parent_conn.poll():
            message = self.parent_conn.recv()
            if isinstance(message, str):
                self.reason, self.has_refused = message, True
            else:
                self.has_ponged, self.can_answer, self.ping_is_pending = True, message, False
                self.was_ready, self.silent_s = self.was_ready or message, 0.0


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
        self._registry = WorkerRegistry(folder, options.workers)
        self._unready_s = 0.0
        """Seconds since the start, or since a worker was ready."""
        self._was_ready = False
        """Whether a worker ever was."""
        self._has_terminal = has_terminal()
        self._failure: str | None = None
        self.reserved = _reserve(options.host, options.grpc_port) if options.grpc_port else []
        """Sockets that keep the port of gRPC for this service's workers."""
        try:
            listeners = _listen(options.host, options.port)
        except OSError:
            _close(self.reserved)
            raise
        host, port, workers = options.host, options.port, options.workers
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
            process = Process(self.config, self.sockets, slot)
            self._start(process)
            self.processes.append(process)

    def keep_subprocess_alive(self) -> None:
        """Kill workers that hang, and replace those that have ended.

        uvicorn calls this twice a second.
        """
        for slot in range(len(self.processes)):
            try:
                self._watch(slot)
            except OSError as error:  # no descriptor or process is left
                log.error("a process cannot be started: %s", error)  # noqa: TRY400
                process = self.processes[slot]
                process.failures += 1
                if process.ended_at is not None:
                    process.ended_at = time.monotonic()
        if any(process.can_answer for process in self.processes):
            self._unready_s, self._was_ready = 0.0, True
            return
        self._unready_s += _TICK_S
        if self._unready_s > UNREADY_TIMEOUT_S:
            self._fail(f"no worker was ready for {UNREADY_TIMEOUT_S:g} s")

    def _watch(self, slot: int) -> None:
        process = self.processes[slot]
        if process.ended_at is None:
            process.poll()
            if process.process.is_alive():
                self._kill_if_hung(process)
                return
            self._record_end(process)
        waited_s = time.monotonic() - (process.ended_at or 0)
        if waited_s >= _wait_s(process) and not self.should_exit.is_set():
            new = Process(self.config, self.sockets, slot)
            new.failures, new.has_refused = process.failures, process.has_refused
            self._start(new)
            self.processes[slot] = new

    def _kill_if_hung(self, process: Process) -> None:
        """Kill a worker that hangs."""
        heartbeat_s = self._options.heartbeat_timeout_s
        limit_s = heartbeat_s if process.has_ponged else STARTUP_TIMEOUT_S
        if process.silent_s > limit_s:
            process.reason = f"it has said nothing for {limit_s:g} s"
            process.process.kill()

    def _record_end(self, process: Process) -> None:
        """Record the end of a worker, and decide whether the service has failed."""
        process.join()
        process.read()
        self._was_ready = self._was_ready or process.was_ready
        self._registry.clear(process.slot)
        process.ended_at = time.monotonic()
        process.can_answer = False
        process.failures = 1 if process.ready_s > _SOUND_S else process.failures + 1
        reason = process.reason or f"it ended with code {process.exitcode}"
        log.error("worker %s: %s; another starts in %g s", process.pid, reason, _wait_s(process))
        failed = [
            process
            for process in self.processes
            if process.has_refused or process.failures >= _STARTS
        ]
        if not self._was_ready and len(failed) == len(self.processes):
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self.should_exit.set()

    def _start(self, process: Process) -> None:
        """Start a worker, which takes signals once it has handlers for them."""
        resource_tracker.ensure_running()  # Python starts it with a worker, and unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # Signals

    def handle_hup(self) -> None:
        """Reload, or end if the terminal was closed."""
        if self._has_terminal and not has_terminal():
            self.handle_term()
        else:
            self._registry.request_reload()

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
            process.was_dropped = not process.has_ponged or process.ended_at is not None
            if process.was_dropped:
                process.process.kill()
            else:
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
            if process.exitcode and not process.was_dropped and not self._is_told_again:
                self._fail(process.reason or "a worker had to be killed")

    @property
    def _is_told_again(self) -> bool:
        """Whether a second SIGTERM or SIGINT has come; other signals are in the queue too."""
        return not {signal.SIGTERM, signal.SIGINT}.isdisjoint(self.signal_queue)


def _wait_s(process: Process) -> float:
    return min(_FIRST_WAIT_S * 4.0 ** min(process.failures - 1, 5), _MAX_WAIT_S)


def _listen(host: str, port: int) -> list[socket.socket]:
    """Open sockets that listen on all addresses of a host.

    Raises:
        OSError: the port is taken.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return [
            socket.create_server(address[:2], family=family, backlog=2048)
            for family, _, _, _, address in addresses
        ]
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error}") from error


def _reserve(host: str, port: int) -> list[socket.socket]:
    """Bind sockets that never listen. They keep a port for the gRPC servers of the workers.

    Workers share the port (SO_REUSEPORT), and so would another service of this user: calls would be
    divided between the two. Binding fails while any other socket has the port. The options change
    afterwards, so that the workers may bind it too, and no other reservation.

    Raises:
        OSError: the port is taken.
    """
    reserved = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            holder = socket.socket(family, kind, protocol)
            reserved.append(holder)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        _close(reserved)
        raise OSError(f"cannot listen on {host}:{port} for gRPC: {error}") from error
    return reserved


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def has_terminal() -> bool:
    """Whether standard input is a terminal that is still open."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True
