"""What a run is: a recipe, a seed, what it learns from and the files that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from training.data.datasets import Examples
from training.recipes import Recipe

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
CURVES = "curves.png"
LOCK = ".lock"


class TrainingError(Exception):
    """Training cannot start or go on; the message says why and nothing was overwritten."""


@dataclass(frozen=True)
class Plan:
    """One run: a recipe, a seed, what it learns from and where it keeps its state."""

    recipe: Recipe
    seed: int
    training: Examples
    validation: Examples | None
    directory: Path

    @property
    def held_out(self) -> int:
        """How many examples are kept for validation."""
        return 0 if self.validation is None else len(self.validation.labels)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the directory, which is made.

        Raises:
            TrainingError: another process trains there.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.directory / LOCK, blocking=False):
                yield
        except Timeout as error:
            raise TrainingError(f"another process trains in {self.directory}") from error

    @property
    def checkpoint_path(self) -> Path:
        """Where the state of the run is kept."""
        return self.directory / CHECKPOINT
