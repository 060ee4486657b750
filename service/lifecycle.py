"""Where the process stands between its start and its end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Lifecycle:
    """What the probes report and the process ends with."""

    draining: bool = False
    """SIGTERM was received: `/readyz` says 503."""
    failure: str | None = None
    """Why the process has to end: `/livez` and `/readyz` say 503, and the exit code is not 0."""

    def fail(self, reason: str) -> None:
        """Note why the process has to end; the first reason counts."""
        self.failure = self.failure or reason

    def lose(self, error: Exception) -> None:
        """Note that inference is lost."""
        self.fail(f"inference is lost: {error}")
