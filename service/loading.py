"""Bundles are loaded at the start, and anew whenever someone asks."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from model.runtime import DeviceError, Runtime
from service.bundles import NothingToServe, load_runtimes
from service.engine import Engine
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.settings import Settings

log = logging.getLogger(__name__)
_COLLECTOR_THRESHOLDS = (5000, 50, 100)
"""Of `gc.set_threshold`; those of CPython 3.11 are (700, 10, 10)."""


class ReloadRefused(Exception):
    """Not all bundles could be loaded; those that were served before still are."""


class Loader:
    """Puts engines behind the routes. Safe for threads.

    Args:
        settings: name the bundles.
        attach: puts an engine behind the routes, in the place of one that is there.
        lifecycle: told if the service will never work.
        metrics: told of every batch.
    """

    def __init__(
        self,
        settings: Settings,
        attach: Callable[[Engine], None],
        *,
        lifecycle: Lifecycle,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._attach = attach
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._one_at_a_time = threading.Lock()
        self.thread = ThreadPoolExecutor(1, "loading")
        """For whoever would wait for a reload on a thread that others need."""

    def load(self) -> None:
        """Load the bundles at the start; what goes wrong ends the process."""
        try:
            with self._one_at_a_time:
                self._put_into_place(load_runtimes(self._settings))
        except (NothingToServe, DeviceError) as error:
            self._lifecycle.fail(str(error))
        except Exception as error:
            log.exception("the bundles cannot be loaded")
            self._lifecycle.fail(f"the bundles cannot be loaded: {error}")

    def reload(self) -> None:
        """Load all bundles anew and exchange them, while requests are answered.

        Raises:
            ReloadRefused: one of them is broken or missing; nothing has changed.
        """
        try:
            with self._one_at_a_time:
                self._put_into_place(load_runtimes(self._settings, on_refusal=_refuse))
        except (NothingToServe, DeviceError) as error:
            raise ReloadRefused(str(error)) from error

    def reload_and_log(self) -> None:
        """Reload for nobody who could be answered: what goes wrong is in the log."""
        try:
            self.reload()
        except ReloadRefused as error:
            log.error("nothing reloaded: %s", error)  # noqa: TRY400  a sentence, not a trace
        except Exception:
            log.exception("nothing reloaded")

    def _put_into_place(self, runtimes: dict[str, Runtime]) -> None:
        settings = self._settings
        engine = Engine(
            runtimes,
            max_delay_s=settings.max_delay_ms / 1000,
            max_waiting_rows=settings.max_waiting_rows,
            on_batch=self._metrics.note_batch,
            on_lost=self._lifecycle.lose,
        )
        self._attach(engine)
        _settle_memory()
        log.info("ready: %s with %s", ", ".join(engine.manifests), engine.provider)


def _refuse(reason: str) -> NoReturn:
    raise ReloadRefused(reason)


def _settle_memory() -> None:
    """Let the garbage collector pass over what is loaded, which stays, and come less often.

    Hundreds of requests in flight are young objects enough for it to go through everything again
    and again, while all wait.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
