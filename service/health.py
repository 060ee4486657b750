"""The state of this process: whether it can answer requests, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from service.inference.engine import Engine
from service.inference.job import Closed


@dataclass
class Health:
    """The engine once it is loaded, and the reasons not to use it."""

    batch_limit_s: float
    """A batch that takes longer counts as hanging."""
    loaded: Engine | None = None
    failure: str | None = None
    """The reason why the process cannot answer any more: `/livez` and `/readyz` say 503."""
    draining: bool = False
    """The service is about to end: `/readyz` says 503, and answers close their connections."""

    @property
    def engine(self) -> Engine:
        """The engine that computes requests.

        Raises:
            Closed: it is not loaded.
        """
        if self.loaded is None:
            raise Closed(self.failure or "the service is starting")
        return self.loaded

    @property
    def can_answer(self) -> bool:
        """Whether bundles are loaded and nothing has failed."""
        return self.loaded is not None and self.failure is None

    @property
    def running_s(self) -> float:
        """How long the running batch has taken so far, in seconds; 0 if none runs."""
        return self.loaded.backend.running_s if self.loaded else 0.0

    def fail(self, reason: str) -> None:
        """Record why the process cannot answer any more; the first reason is kept."""
        self.failure = self.failure or reason

    def check(self) -> None:
        """Record a failure if an inference hangs."""
        if self.running_s > self.batch_limit_s:
            self.fail(f"an inference takes longer than {self.batch_limit_s:g} s")
