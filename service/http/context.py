"""What the parts of one process share: the app's state, with a type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from service.admission import Admission
from service.errors import Unavailable
from service.inference.bundles import trim_memory
from service.inference.engine import Engine
from service.pictures import PictureDecoder, drawing_pool
from service.settings import Settings
from service.shared import SlowThread
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 3
"""The last inference may take this long to end after the last request."""


@dataclass
class Context:
    """Everything that routes, protocols and the process use of each other: `app.state`.

    Args:
        settings: of this process.
        max_cost: the rows of the most expensive request.
        count_workers: gives the number of workers in each state, for the metrics.
    """

    settings: Settings
    _: KW_ONLY
    max_cost: int = 0
    count_workers: Callable[[], Mapping[str, int]] | None = None
    load: Callable[[], Awaitable[Engine]] | None = None
    """Loads the engine."""
    reload: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Has all workers load the bundles anew; None where nothing can."""
    openapi: Callable[[str], bytes] = field(init=False)
    """Gives the OpenAPI document as JSON, for a root path."""
    loaded: Engine | None = None
    """What computes requests, once it is loaded."""
    failure: str | None = None
    """The reason why the process cannot answer any more: `/livez` and `/readyz` say 503."""
    draining: bool = False
    """The service is about to end: `/readyz` says 503, and answers close their connections."""
    has_bundles: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the engine is loaded."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no more connections are accepted."""

    _unfinished: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    """Tasks that the event loop alone would not keep."""

    def __post_init__(self) -> None:
        settings = self.settings
        self.admission = Admission(
            settings.max_waiting_bytes,
            max(settings.max_waiting_rows, self.max_cost),
            rows_per_s=settings.rate_limit_per_key,
            burst_rows=settings.rate_burst_per_key,
        )
        self.metrics = Metrics(lambda: self.admission.waiting_rows, self.count_workers)
        self.pictures = PictureDecoder(max_pixels=settings.max_pixels, processes=2)
        self.drawing = drawing_pool()
        self.slow = SlowThread()

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that goes on if the caller leaves. An error that nobody sees is logged."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    @property
    def engine(self) -> Engine:
        """The engine that computes requests.

        Raises:
            Unavailable: it is not loaded.
        """
        if self.loaded is None:
            raise Unavailable(self.failure or "the service is starting", retry_after_s=1)
        return self.loaded

    @property
    def can_answer(self) -> bool:
        """Whether bundles are loaded and nothing has failed."""
        return self.loaded is not None and self.failure is None

    @property
    def running_s(self) -> float:
        """How long the running batch has taken so far, in seconds; 0 if none runs."""
        return self.loaded.batcher.running_s if self.loaded else 0.0

    async def load_and_use(self) -> None:
        """Load the engine and use it. An error is recorded as this process's failure."""
        assert self.load
        try:
            loaded = await self.load()
        except Exception as error:
            log.debug("the bundles cannot be loaded", exc_info=True)
            self.fail(str(error))
            return
        trim_memory()
        self.use(loaded)

    def use(self, loaded: Engine) -> None:
        """Answer requests with an engine from now on."""
        self.loaded = loaded
        self.metrics.record_models(loaded.provider, loaded.manifests)
        self.has_bundles.set()
        log.info("ready: %s with %s", ", ".join(loaded.manifests), loaded.provider)

    def fail(self, reason: str) -> None:
        """Record why the process cannot answer any more; the first reason is kept."""
        self.failure = self.failure or reason

    def check(self) -> None:
        """Record a failure if an inference hangs."""
        limit_s = self.settings.inference_timeout_s
        if self.running_s > limit_s:
            self.fail(f"an inference takes longer than {limit_s:g} s")

    def close(self) -> None:
        """End the processes, wait for the last inference, and write the last counts."""
        self.pictures.close()
        self.drawing.close()
        self.slow.close()
        if self.loaded and not self.loaded.batcher.close(CLOSE_TIMEOUT_S):
            self.fail(f"the last inference did not end within {CLOSE_TIMEOUT_S} s")


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("what a client began and did not wait for has failed: %s", error)
