"""The server of a worker: uvicorn's, with a drain and limits of its own."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.http.protocol import Connections, Http1, max_connections
from service.settings import Settings

log = logging.getLogger(__name__)
KEEP_ALIVE_S = 75
"""Seconds after which an idle connection is closed.

That is longer than any `Retry-After`, and than load balancers keep theirs: a client that returns in
time never writes into a connection that is closing.
"""
_ACCEPTS_AT_ONCE = 4
"""In one turn of the event loop. If connections come faster than turns, the kernel's queue fills,
and the kernel resets those that do not fit. More at once would leave none to the other workers."""
_BEAT_S = 0.5
"""A worker tells the supervisor this often that its event loop turns."""


class Server(uvicorn.Server):
    """Accepts requests for the grace period of a drain, and ends its process.

    A worker that cannot answer yet accepts only while no other can.

    Args:
        app: what it serves.
        settings: of this process.
        send_to_supervisor: tells the supervisor that the event loop turns, or why this process
            ends.
        others_answer: whether other workers can answer.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        send_to_supervisor: Callable[[str | bool], None],
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
        self._others_answer = others_answer
        self._context = app.state
        self._listeners: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._end_at = float("inf")
        self._batch_s = 0.0
        """Seconds that the running batch has taken, counted in beats: a machine that was frozen is
        no reason to end.
        """

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until there is a reason to stop, and end the process, whatever its threads do."""
        await super().serve(sockets)
        failure = self._context.failure
        if failure:
            self._send_to_supervisor(failure)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if failure else 0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take signals, which the supervisor blocked, and begin the lifespan, which loads bundles.

        `on_tick` has `_accept_some` called: uvloop would accept and drop connections where no
        descriptor is left.
        """
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        self._beat()
        await super().startup(sockets=[])
        self._listeners = sockets or []
        for listener in self._listeners:
            listener.setblocking(False)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept requests for the grace period, then end."""
        del sig, frame
        self._context.draining = True
        self._end_at = min(self._end_at, time.monotonic() + self._settings.drain_grace_s)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked ten times a second. Accept connections, or no longer."""
        loop = asyncio.get_running_loop()
        accepts = self._context.can_answer or not self._others_answer()
        for listener in self._listeners:
            if accepts:
                loop.add_reader(listener, self._accept_some, listener)
            else:
                loop.remove_reader(listener)
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
        except ConnectionError:  # its client is gone; the next one may be sound (accept(2))
            return True
        except OSError as error:  # descriptors or memory are used up
            log.warning("no connection accepted: %s", error)
            loop.remove_reader(listener)  # until the next tick
            return False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does not
        task = loop.create_task(self._begin(connection))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        return True

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

    def _beat(self) -> None:
        """Say that the event loop turns. End this process if an inference hangs.

        Drain without grace if the supervisor is gone.
        """
        asyncio.get_running_loop().call_later(_BEAT_S, self._beat)
        limit_s, parent = self._settings.inference_timeout_s, multiprocessing.parent_process()
        self._batch_s = self._batch_s + _BEAT_S if self._context.running_s > _BEAT_S else 0.0
        if self._batch_s > limit_s:
            self._send_to_supervisor(f"an inference takes longer than {limit_s:g} s")
            os._exit(1)
        if parent and parent.is_alive():
            self._send_to_supervisor(True)
        else:
            self._context.draining, self._end_at = True, 0.0
