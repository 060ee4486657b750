"""Where the process stands between its start and its end."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

_EVERY_S = 0.5


@dataclass
class Lifecycle:
    """What the probes report and the process ends with."""

    draining: bool = False
    """SIGTERM was received: `/readyz` says 503, and answers close their connections."""
    failure: str | None = None
    """Why the process has to end: `/livez` and `/readyz` say 503, and the exit code is not 0."""

    def fail(self, reason: str) -> None:
        """Note why the process has to end; the first reason counts."""
        self.failure = self.failure or reason

    def lose(self, error: Exception) -> None:
        """Note that inference failed for good."""
        self.fail(f"inference failed: {error}")


def watch(
    running_s: Callable[[], float],
    lifecycle: Lifecycle,
    *,
    limit_s: float,
    end: Callable[[str | None], object],
    patience_s: float = 5.0,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Fail when an inference hangs, on a thread of its own.

    Args:
        running_s: how long the batch that is being computed has taken so far.
        lifecycle: told of the failure, so that `/livez` says 503 and the server ends.
        limit_s: what takes longer hangs.
        end: ends the process where the event loop hangs too.
        patience_s: how long the event loop may take to end the process by itself.
        sleep: lets seconds pass.
    """

    def look() -> None:
        while running_s() <= limit_s:
            sleep(_EVERY_S)
        lifecycle.fail(f"an inference takes longer than {limit_s:g} s")
        sleep(patience_s)
        end(lifecycle.failure)

    threading.Thread(target=look, name="watchdog", daemon=True).start()


def end(failure: str | None) -> NoReturn:
    """End the process, whatever its threads are doing: one that is stuck cannot hold it up."""
    if failure:
        print(f"capsnet-service: {failure}", file=sys.stderr)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failure else 0)
