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
from training.run.lineage import Leg

_VERSION = 2


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
    examples: int
    """Training examples in an epoch."""
    devices: tuple[str, ...]
    """What it was trained on: CPU, or the names of GPUs."""
    before: tuple[Leg, ...] = ()
    """The runs whose weights this one started from, the earliest first."""
    trained: dict[str, Any] | None = None
    """The trained weights, where `network` has their average."""

    @property
    def lineage(self) -> tuple[Leg, ...]:
        """The runs that made the network; this one is the last."""
        recipe = self.recipe
        own = Leg(
            preset=recipe.name,
            dataset=recipe.dataset,
            task=recipe.task,
            seed=self.seed,
            steps=self.step,
            images=self.step * recipe.batch_size,
            held_out=self.held_out,
            seconds=self.seconds,
            devices=self.devices,
        )
        return (*self.before, own)

    def save(self, path: Path) -> None:
        """Write to `path` in one step, so that a kill leaves the old file or the new one."""
        values = {
            **self.__dict__,
            "recipe": self.recipe.to_dict(),
            "before": [leg.to_dict() for leg in self.before],
            "version": _VERSION,
        }
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
            return Checkpoint(
                **{
                    **values,
                    "recipe": Recipe.from_dict(values["recipe"]),
                    "before": tuple(Leg.from_dict(leg) for leg in values["before"]),
                }
            )
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
