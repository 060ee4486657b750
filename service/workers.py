"""The threads that run batches."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

_NICENESS = 5
"""How far batches give way to the thread that answers HTTP, which feeds them and is soon done."""


class Workers:
    """Threads that do the same work, each until it returns.

    Args:
        threads: how many.
        work: called once on each of them.
        prepare: called on the first of them before any work; the constructor waits for it.

    Raises:
        Exception: what `prepare` raised.
    """

    def __init__(
        self, threads: int, work: Callable[[], None], *, prepare: Callable[[], None]
    ) -> None:
        self._work = work
        self._prepare = prepare
        prepared: Future[None] = Future()
        first = threading.Thread(
            target=self._prepare_and_work, args=(prepared,), name="inference", daemon=True
        )
        others = [
            threading.Thread(target=self._work_and_give_way, name="inference", daemon=True)
            for _ in range(1, threads)
        ]
        self._threads = [first, *others]
        first.start()
        prepared.result()
        for thread in others:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether all of them are there."""
        return all(thread.is_alive() for thread in self._threads)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until all have ended; whether they did, within the timeout if there is one."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _prepare_and_work(self, prepared: Future[None]) -> None:
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001  the constructor raises it
            prepared.set_exception(error)
            return
        prepared.set_result(None)
        self._work_and_give_way()

    def _work_and_give_way(self) -> None:
        if sys.platform == "linux":  # elsewhere threads have no niceness of their own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._work()
