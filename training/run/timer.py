"""When a run saves and when its time is up."""

from __future__ import annotations

from collections.abc import Callable


class Timer:
    """Looks at the clock once a step and answers from that until the next.

    Args:
        before: training time of the run so far, in seconds.
        max_minutes: from now on.
        save_every_s: counted from the last save, or from now.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        before: float,
        max_minutes: float,
        save_every_s: float,
    ) -> None:
        self._clock = clock
        self._before = before
        self._max_minutes = max_minutes
        self._save_every_s = save_every_s
        self.now = self._started = self._saved = clock()

    def tick(self) -> float:
        """Look at the clock: training time of the run so far, in seconds."""
        self.now = self._clock()
        return self._before + self.now - self._started

    @property
    def is_up(self) -> bool:
        """Whether the run has gone on for as long as it may."""
        return self.now - self._started > 60 * self._max_minutes

    @property
    def save_is_due(self) -> bool:
        """Whether the last save is too long ago."""
        return self.now - self._saved > self._save_every_s

    def note_save(self) -> None:
        """Count from here to the next one."""
        self._saved = self.now
