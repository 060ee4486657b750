"""What the parts of one process share: the app's state, with a type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from service.health import Health
from service.http.budget import Budget
from service.http.rate import RateLimit
from service.inference.bundles import trim_memory
from service.inference.engine import Engine
from service.inference.job import Admission
from service.pictures.pools import DecodePools
from service.pool.pool import Pool
from service.settings import Settings
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 3
"""The last inference may take this long to end after the last request."""


@dataclass(kw_only=True)
class Context:
    """Everything that routes, protocols and the process use of each other: `app.state`."""

    settings: Settings
    health: Health
    admission: Admission
    """Of rows."""
    metrics: Metrics
    rate_limit: RateLimit | None
    """Of each key's rows a second, if the settings have one."""
    budget: Budget
    """Of the bytes in memory."""
    decode_pools: DecodePools
    drawing: Pool
    load: Callable[[], Awaitable[Engine]]
    """Loads the engine."""
    reload: Callable[[], Awaitable[None]]
    """Has all workers load the bundles anew."""
    gather_metrics: Callable[[], Awaitable[bytes]] | None
    """Answers `/metrics`, where this process is one of several without a registry."""
    openapi: Callable[[str], bytes] = field(init=False)
    """Gives the OpenAPI document as JSON, for a root path."""
    has_bundles: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the engine is loaded."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no more connections are accepted."""

    async def load_and_use(self) -> None:
        """Load the engine and use it. An error is recorded as this process's failure."""
        try:
            loaded = await self.load()
        except Exception as error:
            log.debug("the bundles cannot be loaded", exc_info=True)
            self.health.fail(str(error))
            return
        trim_memory()
        self.use(loaded)

    def use(self, loaded: Engine) -> None:
        """Answer requests with an engine from now on."""
        self.health.loaded = loaded
        self.metrics.record_engine(loaded)
        self.has_bundles.set()
        log.info("ready: %s with %s", ", ".join(loaded.manifests), loaded.provider)

    def close(self) -> None:
        """End the processes, and wait for the last inference."""
        self.decode_pools.close()
        self.drawing.close()
        if self.health.loaded and not self.health.loaded.backend.close(CLOSE_TIMEOUT_S):
            self.health.fail(f"the last inference did not end within {CLOSE_TIMEOUT_S} s")
