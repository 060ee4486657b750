"""Ends a worker that hangs."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

HUNG = 80
"""Exit code of a worker that its watchdog ended."""
_TICK_S = 1.0


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
        self._loop, self._batch_s = loop, running_s
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
            runs_since_last_tick = self._batch_s() > _TICK_S
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
