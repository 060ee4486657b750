"""The state of a training run on disk: written whole or not at all."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model.bundle.atomic_file import replacing
from training.learning_set import Pictures
from training.provenance import Run
from training.recipes import Recipe

CHECKPOINT = "checkpoint.pt"
"""In the folder of a run."""
_VERSION = 3


class TrainingError(Exception):
    """Training cannot start or go on; the message says why and nothing was overwritten."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, corrupt or of another run."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where a run stands: enough to continue it as if it had never stopped, and to export it."""

    recipe: Recipe
    pictures: Pictures | None
    """The folder that it learns from, where that is no published data set."""
    examples: int
    """Training examples in an epoch."""
    runs: tuple[Run, ...]
    """This run, the last one, and those whose weights it started from."""
    network: dict[str, Any]
    """The weights that are exported: the trained ones, or their running average."""
    trained: dict[str, Any] | None
    """The trained weights, where `network` has their average."""
    optimiser: dict[str, Any]
    """Its state; empty where the run is complete and nothing goes on."""

    @property
    def run(self) -> Run:
        """This run."""
        return self.runs[-1]

    def save(self, path: Path) -> None:
        """Write to `path` in one step, so that a kill leaves the old file or the new one."""
        recipe = json.loads(json.dumps(self.recipe.to_dict()))  # plain lists: torch loads no others
        values = {
            **self.__dict__,
            "recipe": recipe,
            "pictures": self.pictures and self.pictures.to_dict(),
            "runs": [run.to_dict() for run in self.runs],
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
            typed = {
                "recipe": Recipe.from_dict(values["recipe"]),
                "pictures": values["pictures"] and Pictures.from_dict(values["pictures"]),
                "runs": tuple(Run.from_dict(run) for run in values["runs"]),
            }
            return Checkpoint(**{**values, **typed})
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
