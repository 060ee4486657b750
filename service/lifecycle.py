"""Where the process stands between its start and its end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Lifecycle:
    """What the probes report."""

    draining: bool = False
    """SIGTERM was received: `/readyz` says 503."""
    lost: str | None = None
    """Why inference will never work again: `/livez` and `/readyz` say 503, and the process ends."""

    def lose(self, error: Exception) -> None:
        """Note that inference is lost."""
        self.lost = f"inference is lost: {error}"
