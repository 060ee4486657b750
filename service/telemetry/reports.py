"""What is reported to the metrics: of batches, of what is loaded, and of workers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of the folder that the processes of one service share."""


class BatchReport(NamedTuple):
    """The report of one batch."""

    key: Any
    """The key of the runner."""
    rows: int
    seconds: float
    padding: int = 0


class ReadyWorker(NamedTuple):
    """A worker that can answer."""

    pid: int
    bundles: str
    """The digest of the bundles that it answers with."""
    keys: str
    """The digest of the keys that it answers with."""


class Counts(NamedTuple):
    """The numbers of workers in each state."""

    wanted: int
    """Workers that the settings ask for."""
    ready: int
    """Workers that can answer."""
    restarted: int
    """Workers that were started in place of another."""
    killed: int
    """Workers that were replaced because they hung."""


class Workers(Protocol):
    """The workers of one service."""

    @property
    def counts(self) -> Counts:
        """How many are in each state."""

    @property
    def ready_workers(self) -> list[ReadyWorker]:
        """The workers that can answer."""
