"""uvicorn, but for the way it starts and stops."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from service.lifecycle import Lifecycle
from service.loading import Loader

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Listens before it can answer, and stops in bounded time without losing accepted work.

    The port opens at once, so that probes can tell a process that starts from one that is dead;
    what takes long is loaded meanwhile. SIGHUP loads it anew while requests are answered; where a
    terminal started the process and was closed, it is as SIGTERM.

    SIGTERM or SIGINT turns `/readyz` to 503. For the grace period requests are still taken, because
    load balancers need a moment to notice; then the listener closes, what was accepted is finished,
    and the process ends. A second signal cuts this short.

    Args:
        config: with `timeout_graceful_shutdown` set, which bounds the finishing.
        lifecycle: what the probes look at.
        grace_s: seconds between unreadiness and the closing of the listener.
        loader: loads on a thread of its own once the port is open, and anew after SIGHUP.
        end: ends the process; called on the event loop, which would wait for every thread.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        lifecycle: Lifecycle,
        grace_s: float,
        loader: Loader,
        end: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._grace_s = grace_s
        self._loader = loader
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_terminal = _is_terminal()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until there is a reason to stop, and end."""
        await super().serve(sockets)
        self._end()

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start listening, then loading."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        log.info("opening http://%s:%d", self.config.host, self.config.port)
        await super().startup(sockets)  # type: ignore[arg-type]
        log.info("listening")
        _run_aside(self._loader.load)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; the second time, stop at once."""
        if self._loop is None:
            super().handle_exit(sig, frame)
            return
        if self._lifecycle.draining:
            self.should_exit = self.force_exit = True
            return
        log.info("draining: %g s of grace, then finishing what was accepted", self._grace_s)
        self._lifecycle.draining = True
        self._loop.call_soon_threadsafe(self._loop.call_later, self._grace_s, self._stop)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked ten times a second: a failure ends the process."""
        return self._lifecycle.failure is not None or await super().on_tick(counter)

    def _hang_up(self) -> None:
        """Reload; or end, where the signal says that the terminal was closed."""
        if self._has_terminal and not _is_terminal():
            self.handle_exit(signal.SIGHUP, None)
        else:
            _run_aside(self._loader.reload_and_log)

    def _stop(self) -> None:
        self.should_exit = True


def _is_terminal() -> bool:
    """Whether standard input is a terminal that is still there."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True


def _run_aside(load: Callable[[], None]) -> None:
    threading.Thread(target=load, name="loading", daemon=True).start()
