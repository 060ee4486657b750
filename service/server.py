"""uvicorn, but for the way it starts, stops and gets its connections."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.http.protocol import Http1
from service.lifecycle import end, watch
from service.settings import Settings

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than any `Retry-After`, and than load balancers keep
theirs. Who comes back then does not send a request into a connection that is closing."""
log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Listens before it can answer, and stops in bounded time without losing accepted work.

    The port opens at once, so that probes can tell a process that starts from one that is dead;
    bundles are loaded meanwhile. SIGHUP loads them anew while requests are answered; where a
    terminal started the process and was closed, it is as SIGTERM.

    SIGTERM or SIGINT turns `/readyz` to 503. For the grace period requests are still taken, because
    load balancers need a moment to notice; then the listener closes, what was accepted is finished,
    and the process ends. A second signal cuts this short. Handlers of signals only set flags:
    `on_tick` looks at them ten times a second.

    Args:
        app: what answers.
        settings: of the process.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=partial(Http1, upload_timeout_s=settings.upload_timeout_s),  # type: ignore[arg-type]
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_timeout_s,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        super().__init__(config)
        self.settings = settings
        self.lifecycle = app.state.lifecycle
        self.bundles = app.state.bundles
        self._signals = 0
        self._stop_at = float("inf")
        self._has_terminal = has_terminal()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until there is a reason to stop, and end the process."""
        await super().serve(sockets)
        end(self.lifecycle.failure)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then loading."""
        if sockets is None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        address = f"http://{self.config.host}:{self.config.port}"
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn has logged why
            end(f"cannot listen on {address}")
        if sockets is None:
            log.info("listening on %s", address)
        watch(
            lambda: self.bundles.running_s,
            self.lifecycle,
            limit_s=self.settings.inference_timeout_s,
            end=end,
        )
        if sockets is None:
            self.begin(self.load())

    async def load(self, path: Path | None = None) -> None:
        """Load the bundles, or connect to an engine; what goes wrong ends the process."""
        try:
            await self.bundles.load(path)
        except Exception as error:
            log.debug("the bundles cannot be loaded", exc_info=True)
            self.lifecycle.fail(str(error))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Count a signal."""
        del sig, frame
        self._signals += 1

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked ten times a second."""
        if self._signals and not self.lifecycle.draining:
            log.info("draining: still accepting requests for %g s", self.settings.drain_grace_s)
            self.lifecycle.draining = True
            self._stop_at = time.monotonic() + self.settings.drain_grace_s
        if self._signals > 1:
            self.force_exit = True
        over = self.force_exit or time.monotonic() >= self._stop_at
        return over or self.lifecycle.failure is not None or await super().on_tick(counter)

    def begin(self, work: Awaitable[None]) -> None:
        """Do something beside the requests."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hang_up(self) -> None:
        """Reload; or end, where the signal says that the terminal was closed."""
        if self._has_terminal and not has_terminal():
            self._signals += 1
        else:
            self.begin(self._reload())

    async def _reload(self) -> None:
        try:
            await self.bundles.reload()
        except Exception as error:  # noqa: BLE001  nobody could be answered
            log.error("reload failed: %s", error)  # noqa: TRY400  a sentence, not a trace


def has_terminal() -> bool:
    """Whether standard input is a terminal that is still there."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True
