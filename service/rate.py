"""How fast rows go through."""

from __future__ import annotations


class Rate:
    """Rows a second, smoothed over the last batches."""

    def __init__(self, *, memory: float = 0.9) -> None:
        self._memory = memory
        self._rows = 0.0
        self._seconds = 0.0

    @property
    def rows_per_s(self) -> float:
        """Zero before anything was measured."""
        return self._rows / self._seconds if self._seconds else 0.0

    def note(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._rows = self._memory * self._rows + rows
        self._seconds = self._memory * self._seconds + seconds

    def seconds_for(self, rows: int) -> float:
        """How long these rows take; one second where that is not known."""
        return rows / self.rows_per_s if self.rows_per_s else 1.0
