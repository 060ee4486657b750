"""The server of a worker: uvicorn's, with a drain and limits of its own, and a watchdog."""

from __future__ import annotations

import asyncio
import errno
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.http.protocol import Connections, Http1, max_connections
from service.settings import Settings
from service.telemetry import FOLDER_VARIABLE

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 75
"""Seconds after which an idle connection is closed.

That is longer than any `Retry-After`, and than load balancers keep theirs: a client that returns in
time never writes into a connection that is closing.
"""
_NO_DESCRIPTOR_S = 1.0
"""A worker without file descriptors accepts again after this long."""
_ACCEPTS_AT_ONCE = 4
"""In one turn of the event loop. If connections come faster than turns, the kernel's queue fills,
and the kernel resets those that do not fit. More at once would leave none to the other workers."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` that last until something is released. `accept` also reports errors of the
connection itself, such as ECONNABORTED: the next connection may succeed (accept(2))."""
HUNG = 80
"""Exit code of a worker that its watchdog ended."""
_TICK_S = 1.0


class Server(uvicorn.Server):
    """Accepts requests for the grace period of a drain, and ends its process.

    A worker that cannot answer yet accepts only while no other can.

    Args:
        app: what it serves.
        settings: of this process.
        send_to_supervisor: tells the supervisor why this process ends.
        others_answer: whether other workers can answer.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        send_to_supervisor: Callable[[str], None],
        others_answer: Callable[[], bool],
    ) -> None:
        config = uvicorn.Config(
            app,
            http=partial(  # type: ignore[arg-type]
                Http1,
                admission=app.state.admission,
                connections=Connections(max_connections(settings.max_waiting_bytes)),
                upload_timeout_s=settings.upload_timeout_s,
            ),
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout_s,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        super().__init__(config)
        self._settings, self._send_to_supervisor = settings, send_to_supervisor
        self._others_answer, self._accepts = others_answer, False
        self._context = app.state
        self._listeners: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._end_at = float("inf")
        self._is_orphan = False

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered."""
        can_answer: bool = self._context.can_answer
        return can_answer

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until there is a reason to stop, and end the process, whatever its threads do."""
        await super().serve(sockets)
        failure = self._context.failure
        if failure:
            self._send_to_supervisor(failure)
        if self._is_orphan:  # nobody else removes what the supervisor has left
            shutil.rmtree(os.environ[FOLDER_VARIABLE], ignore_errors=True)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if failure else 0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take signals, which the supervisor blocked, and accept.

        uvloop would accept and drop connections where no descriptor is left.
        """
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        Watchdog(
            asyncio.get_running_loop(),
            lambda: self._context.running_s,
            inference_timeout_s=self._settings.inference_timeout_s,
            heartbeat_timeout_s=self._settings.heartbeat_timeout_s,
            send_to_supervisor=self._send_to_supervisor,
            leave=self._leave,
        ).start()
        await super().startup(sockets=[])
        self.listen(sockets or [])

    def listen(self, listeners: list[socket.socket]) -> None:
        """Accept connections from listening sockets whenever requests can be answered."""
        self._listeners = listeners
        for listener in listeners:
            listener.setblocking(False)
        self._listen()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept requests for the grace period, then end."""
        del sig, frame
        self._context.draining = True
        self._end_at = min(self._end_at, time.monotonic() + self._settings.drain_grace_s)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked ten times a second."""
        self._listen()
        is_over = self._context.failure or time.monotonic() >= self._end_at
        return bool(is_over) or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port and finish what was accepted, over HTTP and gRPC within the same time."""
        self._context.draining = True
        self._context.ending.set()
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            while not self._context.failure and self._accept(listener):
                pass  # the last worker that closes the port would reset what waits
            listener.close()
        await asyncio.gather(*self._accepting)
        await super().shutdown(sockets)

    def _listen(self) -> None:
        """Start or stop accepting connections."""
        accepts = self.is_ready or not self._others_answer()
        if accepts != self._accepts:
            self._accepts = accepts
            for listener in self._listeners:
                if accepts:
                    self._resume(listener)
                else:
                    asyncio.get_running_loop().remove_reader(listener)

    def _accept_some(self, listener: socket.socket) -> None:
        """Accept the connections that wait, up to a bound."""
        for _ in range(_ACCEPTS_AT_ONCE):
            if not self._accept(listener):
                break

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection, and return whether there may be another."""
        loop = asyncio.get_running_loop()
        try:
            connection, _ = listener.accept()
        except BlockingIOError:  # another worker was faster
            return False
        except OSError as error:
            log.warning("no connection accepted: %s", error)
            if error.errno in _EXHAUSTED:  # uvloop's remove_reader returns None, asyncio's a bool
                loop.remove_reader(listener)
                loop.call_later(_NO_DESCRIPTOR_S, self._resume, listener)
            return isinstance(error, ConnectionError)  # the next one may be sound
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does not
        task = loop.create_task(self._begin(connection))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        return True

    def _resume(self, listener: socket.socket) -> None:
        if self._accepts and listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept_some, listener)

    async def _begin(self, connection: socket.socket) -> None:
        """Serve a connection."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # its client is gone
            connection.close()

    def _make_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _leave(self) -> None:
        """Drain without grace, because the supervisor is gone."""
        self._is_orphan = self._context.draining = True
        self._end_at = 0.0


class Watchdog(threading.Thread):
    """Ends this process if its event loop does not turn or an inference takes too long.

    Seconds are counted in ticks of this thread: a machine that was frozen is no reason to end.

    Args:
        loop: the event loop.
        running_s: how long the running batch has taken so far, in seconds.
        inference_timeout_s: a batch that takes longer hangs.
        heartbeat_timeout_s: within which the loop has to turn.
        send_to_supervisor: tells the supervisor why this process ends.
        leave: called on the event loop if the supervisor is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running_s: Callable[[], float],
        *,
        inference_timeout_s: float,
        heartbeat_timeout_s: float,
        send_to_supervisor: Callable[[str], None],
        leave: Callable[[], None],
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._loop, self._batch_running_s = loop, running_s
        self._inference_timeout_s = inference_timeout_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._send_to_supervisor, self._leave = send_to_supervisor, leave
        self._silent_s = self._running_s = 0.0

    def run(self) -> None:
        """Check once a second."""
        parent = multiprocessing.parent_process()
        while True:
            time.sleep(_TICK_S)
            self._silent_s += _TICK_S
            runs_since_last_tick = self._batch_running_s() > _TICK_S
            self._running_s = self._running_s + _TICK_S if runs_since_last_tick else 0.0
            if self._silent_s > self._heartbeat_timeout_s:
                self._end(f"its event loop has not turned for {self._heartbeat_timeout_s:g} s")
            if self._running_s > self._inference_timeout_s:
                self._end(f"an inference takes longer than {self._inference_timeout_s:g} s")
            with suppress(RuntimeError):  # the loop has ended, and this process hangs if it goes on
                self._loop.call_soon_threadsafe(self._turn)
                if parent and not parent.is_alive():
                    self._loop.call_soon_threadsafe(self._leave)

    def _turn(self) -> None:
        self._silent_s = 0.0

    def _end(self, reason: str) -> None:
        """End at once, without a word in the log: its lock may be held."""
        self._send_to_supervisor(reason)
        os._exit(HUNG)
