"""A run's plan, state and checkpoint, which is written whole or not at all."""

from __future__ import annotations

import json
import pickle
import secrets
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer
from torch import Tensor, nn

from model import find
from model.bundle import MANIFEST, Bundle, BundleError
from model.bundle.disk import replacing
from model.capsnet import Network, build
from model.capsnet.decoder import ClassCodes
from model.capsnet.families import read_weights
from model.capsnet.pretrained import PretrainedNetwork
from model.capsnet.stem import Whitening
from model.preprocess import WHITE
from training.data.augment import moved_copies
from training.data.datasets import Examples
from training.data.folder import FolderSplit
from training.device import convolution_precision, device_name
from training.muon import make_optimisers, set_rates
from training.pretrained import PublishedWeights, load_weights
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
_WHITENED = 1000
"""The number of training images that fit a whitening layer."""


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

    @property
    def run(self) -> Run:
        """The run of this checkpoint."""
        return self.runs[-1]

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
    weights: PublishedWeights | None = None
    """The published weights that a pretrained stem starts from."""
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


class TrainingState:
    """The weights, the optimiser and the progress of a run. A new one is initialised by its seed.

    Raises:
        TrainingError: the recipe freezes what is not there, or everything.
    """

    def __init__(self, plan: Plan, *, device: torch.device) -> None:
        self._plan = plan
        self._device_name = device_name(device)
        self._on_gpu = device.type == "cuda"
        recipe = plan.recipe
        self._precision = convolution_precision(recipe.convolutions, device)
        torch.manual_seed(plan.seed)
        self.network = build(recipe.network).to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if plan.weights:
            load_weights(self.network, plan.weights)
        pretrained = [
            name
            for name, part in self.network.named_modules()
            if isinstance(part, PretrainedNetwork)
        ]
        self._frozen = freeze(self.network, (*recipe.frozen, *pretrained))
        count = len(plan.training.labels)
        evenly = np.arange(min(count, _WHITENED)) * count // min(count, _WHITENED)
        some = plan.training.images[evenly]
        for part in self.network.modules():
            if isinstance(part, Whitening):
                part.fit(torch.tensor(some, device=device).float() / WHITE)
            if isinstance(part, ClassCodes):
                part.fit(*moved_copies(plan.training, recipe, device=device))
        self.optimisers = make_optimisers(self.network, recipe, on_gpu=self._on_gpu)
        decay = recipe.average_decay
        self.average = (
            RunningAverage(self.network, decay=decay, frozen=self._frozen) if decay else None
        )
        """The running average of the weights, if the recipe wants it."""
        self.run = Run(
            id=secrets.token_hex(8),
            preset=recipe.name,
            dataset=recipe.dataset,
            task=recipe.task,
            seed=plan.seed,
            held_out=plan.held_out_count,
            recipe=json.loads(json.dumps(recipe.to_dict())),
            command=plan.command,
        )
        self._before: tuple[Run, ...] = ()
        self.best: Best | None = None

    @property
    def result(self) -> Network:
        """The network that is validated and exported: the trained one, or its running average."""
        return self.network if self.average is None else self.average.network

    def begin_step(self, rate: float) -> None:
        """Prepare a step: set Adam's `rate` and those that follow it, dropout and training mode."""
        set_rates(self.optimisers, rate)
        if self.average is not None:
            self.average.set_share(self.run.steps)
        torch.manual_seed(self.run.seed * 1_000_003 + self.run.steps)  # of dropout
        self.network.train()
        for module in self._frozen:
            module.eval()

    def move(self) -> None:
        """Step the optimisers, and update the average, with the rates that `begin_step` set."""
        for optimiser in self.optimisers:
            optimiser.step()
        if self.average is not None:
            self.average.add(self.network)

    def end_step(self) -> None:
        """Count the step."""
        run = self.run
        self.run = replace(
            run,
            steps=run.steps + 1,
            images=run.images + self._plan.recipe.batch_size,
            devices=tuple(dict.fromkeys((*run.devices, self._device_name))),
            convolutions=tuple(dict.fromkeys((*run.convolutions, self._precision))),
        )

    def keep_if_best(self, error_percent: float, class_error_percent: float) -> None:
        """Keep the result as the best, if the recipe says so and it has the fewest errors.

        Args:
            class_error_percent: the mean over classes, which decides.
        """
        if self._plan.recipe.keep == "last":
            return
        if not self.best or class_error_percent <= self.best.class_error_percent:
            weights = self.result.state_dict()
            copies = {name: weight.to("cpu", copy=True) for name, weight in weights.items()}
            self.best = Best(error_percent, class_error_percent, self.run.steps, copies)

    def kept_network(self) -> Network:
        """A copy of the network that a complete run exports: the best one, or the result."""
        network = deepcopy(self.result)
        if self.best:
            network.load_state_dict(self.best.weights)
        return network

    def start_from(self, other: Checkpoint, *, fitting: bool = False) -> tuple[str, ...]:
        """Start from the weights of another run, with this one's recipe and steps.

        Args:
            fitting: whether its network may be another one; then weights of the same name and
                shape are taken.

        Returns:
            names of the weights that were taken.

        Raises:
            TrainingError: this run has begun, its network is another one or nothing fits, or its
                batches would be those of an earlier run.
        """
        own, weights = self.run, self.network.state_dict()
        if own.steps:
            raise TrainingError("cannot load weights into a run that has started")
        if not fitting and other.recipe.network != self._plan.recipe.network:
            raise TrainingError(f"{other.recipe.name} is another network than this recipe's")
        taken = {
            name: weight
            for name, weight in other.network.items()
            if name in weights and weights[name].shape == weight.shape
        }
        if not taken:
            raise TrainingError(f"no weight of {other.recipe.name} fits this recipe's network")
        for run in other.runs:
            if (run.dataset, run.task, run.seed) == (own.dataset, own.task, own.seed):
                raise TrainingError(
                    f"these weights have seen the batches of seed {run.seed} ({run}); another "
                    "--seed gives new ones"
                )
        self.network.load_state_dict(taken, strict=False)
        self.result.load_state_dict(self.network.state_dict())
        *before, last = other.runs
        self._before = (*before, replace(last, taken=tuple(taken) if fitting else ()))
        return tuple(taken)

    def save(self, *, examples: int, complete: bool) -> None:
        """Write the run's checkpoint.

        Args:
            examples: in an epoch.
            complete: whether nothing goes on from here; then the result alone is kept, or the
                best one.
        """
        best, network = self.best, self.result.state_dict()
        progress = {
            "trained": self.network.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "best": best and best._asdict(),
        }
        if complete and best:
            network, self.run = best.weights, replace(self.run, kept_step=best.step)
        Checkpoint(
            recipe=self._plan.recipe,
            pictures=self._plan.split,
            examples=examples,
            runs=(*self._before, self.run),
            network=network,
            progress={} if complete else progress,
        ).save(self._plan.checkpoint_path)

    def restore(self) -> None:
        """Restore the run's checkpoint.

        Raises:
            TrainingError: the checkpoint belongs to another recipe, seed or split.
            CheckpointError: it is missing or corrupt, or its weights do not fit.
        """
        plan, path = self._plan, self._plan.checkpoint_path
        saved = Checkpoint.load(path)
        *before, run = saved.runs
        others = [
            field.name
            for field in fields(Recipe)
            if getattr(plan.recipe, field.name) != getattr(saved.recipe, field.name)
        ]
        same_split = plan.split.is_same(saved.pictures) if plan.split else not saved.pictures
        same_run = (plan.seed, plan.held_out_count) == (run.seed, run.held_out)
        if others or not (same_split and same_run):
            named = f" ({', '.join(others)})" if others else ""
            raise TrainingError(f"{path} was trained with another recipe{named}, seed or split")
        try:
            self.network.load_state_dict(saved.progress.get("trained", saved.network))
            self.result.load_state_dict(saved.network)
            if saved.progress:
                states = saved.progress["optimisers"]
                for optimiser, state in zip(self.optimisers, states, strict=True):
                    optimiser.load_state_dict(state)
                for group in self.optimisers[0].param_groups:  # it may have been saved elsewhere
                    group["capturable"] = self._on_gpu
                self.best = saved.progress["best"] and Best(**saved.progress["best"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path} does not fit: {error}") from error
        self.run, self._before = run, tuple(before)


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
    """Freeze parts of a network, such as `stem` or `classes.weight`.

    Returns:
        modules that are frozen as a whole: their statistics and dropout stay as they are, too.
    """
    named: dict[str, nn.Module | nn.Parameter] = {
        **dict(network.named_modules()),
        **dict(network.named_parameters()),
    }
    frozen: list[nn.Module] = []
    for name in parts:
        part = named.get(name)
        if part is None:
            known = ", ".join(name for name, _ in network.named_children())
            raise TrainingError(f"{name} is no part of the network; it has {known}")
        part.requires_grad_(False)
        if isinstance(part, nn.Module):
            frozen += part.modules()
    if not any(weight.requires_grad for weight in network.parameters()):
        raise TrainingError("everything is frozen, so nothing can be trained")
    return frozen
