"""The threads that run batches."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

_NICENESS = 5
"""How far batches give way to the thread that answers HTTP, which feeds them and is soon done."""


class Workers:
    """Threads that do the same work, each until it returns.

    Only the threads hold on to the work, so that its owner, who holds these workers, is forgotten
    when they have ended, without a search for cycles.

    Args:
        work: called once on each of them.
        prepare: called on the first of them before any work, and says how many there are to be;
            the constructor waits for it.

    Raises:
        Exception: what `prepare` raised.
    """

    def __init__(self, work: Callable[[], None], *, prepare: Callable[[], int]) -> None:
        prepared: Future[int] = Future()
        self._threads = [_begin(_prepare_and_work, prepare, prepared, work)]
        for _ in range(1, prepared.result()):
            self._threads.append(_begin(_give_way_and_work, work))

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


def _begin(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name="inference", daemon=True)
    thread.start()
    return thread


def _prepare_and_work(
    prepare: Callable[[], int], prepared: Future[int], work: Callable[[], None]
) -> None:
    try:
        count = prepare()
    except Exception as error:  # noqa: BLE001  the constructor raises it
        prepared.set_exception(error)
        return
    prepared.set_result(count)
    _give_way_and_work(work)


def _give_way_and_work(work: Callable[[], None]) -> None:
    if sys.platform == "linux":  # elsewhere threads have no niceness of their own
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may not let it
            niceness = max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
    work()
