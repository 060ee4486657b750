"""A run's plan, its checkpoint, which is written whole or not at all, and averaged weights."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from torch import Tensor, nn

from model import find
from model.bundle import MANIFEST, Bundle, BundleError
from model.bundle.disk import replacing
from model.capsnet import Network
from model.capsnet.families import read_weights
from model.capsnet.pretrained import PretrainedNetwork
from training.data.datasets import Examples
from training.data.folder import FolderSplit
from training.provenance import Run
from training.recipes import Recipe, recipe_of

CHECKPOINT = "checkpoint.pt"
"""The checkpoint's name in the folder of a run."""
_UNREADABLE = (
    *(OSError, EOFError, RuntimeError, LookupError, ValueError, TypeError, AttributeError),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)
"""The exceptions of reading a file that is no checkpoint."""
LOCK = ".lock"
_FITTED_AT_ONCE = 256
"""The number of images of one forward pass that fits statistics."""


class TrainingError(Exception):
    """Training cannot start or go on. The message says why, and nothing was overwritten."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, corrupt or of another run."""


class Best(NamedTuple):
    """The weights with the fewest errors on held-out images so far; of equal ones the latest."""

    error_percent: float
    class_error_percent: float
    """The mean over classes, which decides."""
    step: int
    weights: dict[str, Any]


def _read_recipe(recipe: Recipe | dict[str, Any]) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else Recipe.from_dict(recipe)


class Checkpoint(BaseModel):
    """The state of a run, with which it continues as if it had never stopped, and is exported."""

    model_config = ConfigDict(frozen=True)

    recipe: Annotated[Recipe, BeforeValidator(_read_recipe), PlainSerializer(Recipe.to_dict)]
    examples: int
    """The number of examples in an epoch."""
    runs: tuple[Run, ...]
    """This run, which is the last one, and those whose weights it started from."""
    pictures: FolderSplit | None = None
    """The folder that it is trained on, where that is no published data set."""
    network: dict[str, Any]
    """The weights that are exported: the trained ones, or their running average."""
    progress: dict[str, Any] = {}
    """What the run needs to go on: the trained weights, the states of Adam and Muon, and the best
    weights so far, where there are some; empty where the run is complete."""

    def record(self) -> dict[str, Any]:
        """What was learnt, as JSON-ready values: the entry `training` of a bundle's manifest."""
        record = self.model_dump(mode="json", exclude={"network", "progress"})
        return {name: value for name, value in record.items() if value is not None}

    def save(self, path: Path) -> None:
        """Write to `path` in one step, so that a kill leaves the old file or the new one."""
        with replacing(path) as file:
            torch.save({**self.record(), "network": self.network, "progress": self.progress}, file)

    @staticmethod
    def load(path: Path) -> Checkpoint:
        """Read what `save` wrote. Tensors arrive on the CPU.

        Raises:
            CheckpointError: missing or corrupt.
        """
        if not path.exists():
            raise CheckpointError(f"there is no checkpoint at {path}")
        try:
            with zipfile.ZipFile(path) as archive:
                if archive.testzip():  # torch does not look at the checksums
                    raise CheckpointError(f"{path} is corrupt")
            return Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
        except _UNREADABLE as error:
            raise CheckpointError(f"{path} is not a readable checkpoint: {error}") from error


def starting_point(source: Path) -> Checkpoint:
    """Load the weights of a run, by folder, or of a bundle, by folder or shipped name.

    Raises:
        CheckpointError: neither is there, or it is corrupt.
    """
    if (source / CHECKPOINT).exists() or not (find(source) / MANIFEST).is_file():
        return Checkpoint.load(source / CHECKPOINT)
    try:
        bundle = Bundle.open(find(source))
        weights = {"recipe": recipe_of(bundle), "network": read_weights(bundle)}
        return Checkpoint(**{**bundle.manifest.training, **weights})
    except (BundleError, ValueError) as error:
        raise CheckpointError(f"no weights can be taken from {source}: {error}") from error


@dataclass(frozen=True)
class Plan:
    """The plan of a run: its recipe, seed, training images and directory."""

    recipe: Recipe
    seed: int
    training: Examples
    validation: Examples | None
    directory: Path
    split: FolderSplit | None = None
    """The folder that the examples are from, where that is no published data set."""
    command: str = ""
    """The command that was typed to begin the run, for its card."""

    @property
    def held_out_count(self) -> int:
        """The number of examples that are kept for validation."""
        return 0 if self.validation is None else len(self.validation.labels)

    @property
    def checkpoint_path(self) -> Path:
        """The path of the run's checkpoint."""
        return self.directory / CHECKPOINT

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory, and keep other processes out of it.

        Raises:
            TrainingError: another process trains there.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.directory / LOCK, blocking=False):
                yield
        except Timeout as error:
            raise TrainingError(f"another process trains in {self.directory}") from error


class RunningAverage:
    """A copy of a network whose weights follow, exponentially weighted, those of the original.

    torch's own `AveragedModel` would make the CPU wait for the GPU after every step.

    Args:
        decay: share of the old average kept at each step; less at first, so that the average spans
            about the last tenth of the steps so far.
        frozen: modules of the network that keep their statistics.
    """

    def __init__(self, network: Network, *, decay: float, frozen: Collection[nn.Module]) -> None:
        self.network = deepcopy(network).requires_grad_(False).eval()
        self._decay = decay
        self._share = torch.ones((), device=next(network.parameters()).device)
        self._norms = [
            copy
            for copy, module in zip(self.network.modules(), network.modules(), strict=True)
            if isinstance(copy, nn.BatchNorm2d) and module not in frozen
        ]
        for norm in self._norms:
            norm.momentum = None  # statistics are those of all batches

    def set_share(self, step: int) -> None:
        """Set the share of the weights after a step, counted from zero, in the average."""
        self._share.fill_(max(1 - self._decay, 10 / (10 + step)))

    @torch.no_grad()
    def add(self, network: Network) -> None:
        """Add the weights with their share, and copy all statistics."""
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.lerp_(weight, self._share)
        for copy, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            copy.copy_(buffer)

    @torch.no_grad()
    def fit_statistics(self, images: Tensor) -> None:
        """Replace the copied statistics of batch normalisation, which belong to other weights.

        Args:
            images: (N, C, H, W) as in training.
        """
        if not self._norms:
            return
        for norm in self._norms:
            norm.reset_running_stats()
            norm.train()
        for some in torch.split(images, _FITTED_AT_ONCE):
            self.network(some)
        self.network.eval()


def freeze(network: Network, parts: Collection[str]) -> list[nn.Module]:
    """Freeze parts of a network, such as `stem` or `classes.weight`, and what is pretrained.

    Returns:
        modules that are frozen as a whole: their statistics and dropout stay as they are, too.

    Raises:
        TrainingError: a part is not there, or everything is frozen.
    """
    named: dict[str, nn.Module | nn.Parameter] = {
        **dict(network.named_modules()),
        **dict(network.named_parameters()),
    }
    if unknown := [name for name in parts if name not in named]:
        known = ", ".join(name for name, _ in network.named_children())
        raise TrainingError(f"{unknown[0]} is no part of the network; it has {known}")
    frozen: list[nn.Module] = []
    for name, part in named.items():
        if name in parts or isinstance(part, PretrainedNetwork):
            part.requires_grad_(False)
            frozen += part.modules() if isinstance(part, nn.Module) else ()
    if not any(weight.requires_grad for weight in network.parameters()):
        raise TrainingError("everything is frozen, so nothing can be trained")
    return frozen
