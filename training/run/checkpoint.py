"""The state of a training run on disk: written whole or not at all."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model.atomic_file import replacing
from training.recipes import Recipe

_VERSION = 1


class CheckpointError(Exception):
    """A checkpoint is missing, corrupt or of another run."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: enough to continue it as if it had never stopped."""

    recipe: Recipe
    seed: int
    held_out: int
    """How many training examples are kept for validation."""
    step: int
    """Steps done."""
    seconds: float
    """Training time so far."""
    network: dict[str, Any]
    """The weights that are exported: the trained ones, or their running average."""
    optimiser: dict[str, Any]
    """Its state; empty where the run is complete and nothing goes on."""
    examples: int = 60_000
    """Training examples in an epoch."""
    seconds_before: float = 0.0
    """Training time of the runs whose weights this one started from."""
    started_from: str | None = None
    """The run whose weights this one started from, if any, as a sentence."""
    transferred: tuple[str, ...] = ()
    """Names of the weights it took from that run; empty if it took them all."""
    trained: dict[str, Any] | None = None
    """The trained weights, where `network` has their average."""
    device: str = "CPU"
    """What it was trained on: CPU, or the name of the GPU."""

    def save(self, path: Path) -> None:
        """Write to `path` in one step, so that a kill leaves the old file or the new one."""
        values = {**self.__dict__, "recipe": self.recipe.to_dict(), "version": _VERSION}
        with replacing(path) as file:
            torch.save(values, file)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Read what `save` wrote; tensors arrive on the CPU.

        Raises:
            CheckpointError: missing, corrupt, or written by another version.
        """
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint at {path}")
        try:
            with zipfile.ZipFile(path) as archive:
                if archive.testzip():  # torch does not look at the checksums
                    raise CheckpointError(f"{path} is corrupt")
            values = torch.load(path, map_location="cpu", weights_only=True)
            if values.pop("version") != _VERSION:
                raise CheckpointError(f"{path} was written by another version of the trainer")
            return Checkpoint(**{**values, "recipe": Recipe.from_dict(values["recipe"])})
        except (
            OSError,
            EOFError,
            RuntimeError,
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            pickle.UnpicklingError,
            zipfile.BadZipFile,
        ) as error:
            raise CheckpointError(f"{path} is not a readable checkpoint: {error}") from error
