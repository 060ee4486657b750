"""One event loop on a thread, on which all clients that wait for their answers send requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and return its result; an interruption cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, _running_loop())
    try:
        return future.result()
    finally:
        future.cancel()


def _running_loop() -> asyncio.AbstractEventLoop:
    """The loop; it is started by the first request, and anew in a forked process."""
    global _loop, _thread  # noqa: PLW0603  one for the process
    with _starting:
        if _loop is None or _thread is None or not _thread.is_alive():
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="capsnet", daemon=True)
            _thread.start()
        return _loop
