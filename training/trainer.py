"""The training loop: the same code on a CPU and on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from model.capsnet import CapsNet
from training.checkpoint import Checkpoint, CheckpointError
from training.curves import draw_curves
from training.datasets import Examples
from training.metrics import Meter, MetricsLog
from training.progress import RunProgress
from training.recipes import Recipe
from training.schedule import learning_rate
from training.signals import stop_signals
from training.tasks import make_task

CHECKPOINT = "checkpoint.pt"
METRICS = "metrics.jsonl"
CURVES = "curves.png"


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


class Trainer:
    """Trains one network step by step; `run` is the loop around `step`.

    Args:
        resume: continue from the directory's checkpoint instead of starting anew.

    Raises:
        TrainingError: the directory already holds a run and `resume` was not asked for, or the
            checkpoint there belongs to another recipe, seed or split.
        CheckpointError: the checkpoint is missing or corrupt.
    """

    def __init__(self, plan: Plan, *, device: torch.device, resume: bool = False) -> None:
        self.plan = plan
        self.device = device
        torch.manual_seed(plan.seed)
        self.network = CapsNet(plan.recipe.network).to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=plan.recipe.learning_rate, eps=1e-8, fused=True
        )
        self.done_steps = 0
        self.seconds = 0.0
        self._started_from: str | None = None
        self._transferred: tuple[str, ...] = ()
        self._seconds_before = 0.0
        self._checkpoint_path = plan.directory / CHECKPOINT
        if resume:
            self._restore()
        elif self._checkpoint_path.exists():
            raise TrainingError(
                f"{plan.directory} already holds a run; continue it with --resume or choose "
                "another directory"
            )
        plan.directory.mkdir(parents=True, exist_ok=True)
        self._metrics = MetricsLog(plan.directory / METRICS, keep_until=self.done_steps)
        self.task = make_task(plan.recipe, plan.training, seed=plan.seed, device=device)

    @property
    def total_steps(self) -> int:
        """Steps after which the run is complete."""
        images = self.plan.recipe.epochs * self.task.epoch_size
        return math.ceil(images / self.plan.recipe.batch_size)

    def run(
        self,
        *,
        max_minutes: float = math.inf,
        log_every: int = 100,
        save_every_s: float = 120,
        clock: Callable[[], float] = time.monotonic,
    ) -> bool:
        """Train until the recipe ends, the time is up or SIGTERM or SIGINT arrives.

        The state is saved then, and every `save_every_s` seconds before.

        Returns:
            whether the recipe was completed.

        Raises:
            TrainingError: the loss is no longer finite; the last checkpoint is kept.
        """
        name, total = self.plan.recipe.name, self.total_steps
        started, before = clock(), self.seconds
        saved = started
        meter = Meter(self.device, started)
        with (
            stop_signals() as stop,
            RunProgress(name, total=total, done=self.done_steps) as progress,
        ):
            while self.done_steps < total:
                meter.add(self.step())
                now = clock()
                self.seconds = before + now - started
                progress.advance_to(self.done_steps)
                if self.done_steps % log_every == 0 or self.done_steps == total:
                    progress.show(self.done_steps, self._log(meter, now))
                if self.plan.validation is not None and self._ends_epoch():
                    progress.show_validation(self._validate(self.plan.validation))
                if now - saved > save_every_s:
                    self.save()
                    saved = now
                if stop() or now - started > 60 * max_minutes:
                    break
        self.save()
        draw_curves(self._metrics.path, self.plan.directory / CURVES, title=name)
        return self.done_steps >= total

    def start_from(self, other: Checkpoint) -> None:
        """Take the weights of another run of the same network; the recipe starts anew.

        Raises:
            TrainingError: this run has begun, or its network has other sizes.
        """
        if other.recipe.network != self.plan.recipe.network:
            raise TrainingError(f"{other.recipe.name} is another network than this recipe's")
        self._take(other.network, other)

    def transfer_from(self, other: Checkpoint) -> tuple[str, ...]:
        """Take the weights of another run that have their like here: the same name and shape.

        Returns:
            names of the weights that were taken; the others stay as they were initialised.

        Raises:
            TrainingError: this run has begun, or nothing matches.
        """
        own = self.network.state_dict()
        matching = {
            name: weight
            for name, weight in other.network.items()
            if name in own and own[name].shape == weight.shape
        }
        if not matching:
            raise TrainingError(f"no weight of {other.recipe.name} fits this recipe's network")
        self._take(matching, other)
        self._transferred = tuple(matching)
        return self._transferred

    def _take(self, weights: dict[str, Tensor], other: Checkpoint) -> None:
        if self.done_steps:
            raise TrainingError("a run that has begun cannot take other weights")
        self.network.load_state_dict(weights, strict=False)
        self._seconds_before = other.seconds_before + other.seconds
        self._started_from = f"{other.recipe.name}, seed {other.seed}, {other.step} steps"
        if other.started_from:
            self._started_from += f" (started from {other.started_from})"

    def step(self) -> Tensor:
        """One gradient step.

        Returns:
            (2,) margin and reconstruction loss, on the training device and detached.
        """
        rate = learning_rate(self.plan.recipe, self.done_steps, total=self.total_steps)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        margin, reconstruction = self.task.losses(self.network, self.done_steps)
        self.optimiser.zero_grad(set_to_none=True)
        (margin + self.plan.recipe.reconstruction_weight * reconstruction).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.done_steps += 1
        return torch.stack((margin, reconstruction)).detach()

    def save(self) -> None:
        """Write the checkpoint.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            raise TrainingError(
                f"a weight is not finite at step {self.done_steps}; the last checkpoint is kept"
            )
        Checkpoint(
            recipe=self.plan.recipe,
            seed=self.plan.seed,
            held_out=0 if self.plan.validation is None else len(self.plan.validation.labels),
            step=self.done_steps,
            seconds=self.seconds,
            network=self.network.state_dict(),
            optimiser=self.optimiser.state_dict(),
            examples=self.task.epoch_size,
            seconds_before=self._seconds_before,
            started_from=self._started_from,
            transferred=self._transferred,
            device=_device_name(self.device),
        ).save(self._checkpoint_path)

    def _restore(self) -> None:
        checkpoint = Checkpoint.load(self._checkpoint_path)
        held_out = 0 if self.plan.validation is None else len(self.plan.validation.labels)
        asked = (self.plan.recipe, self.plan.seed, held_out)
        if asked != (checkpoint.recipe, checkpoint.seed, checkpoint.held_out):
            raise TrainingError(
                f"{self._checkpoint_path} was trained with another recipe, seed or split"
            )
        try:
            self.network.load_state_dict(checkpoint.network)
            self.optimiser.load_state_dict(checkpoint.optimiser)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{self._checkpoint_path} does not fit: {error}") from error
        self.done_steps, self.seconds = checkpoint.step, checkpoint.seconds
        self._started_from, self._transferred = checkpoint.started_from, checkpoint.transferred
        self._seconds_before = checkpoint.seconds_before

    def _ends_epoch(self) -> bool:
        steps_per_epoch = math.ceil(self.task.epoch_size / self.plan.recipe.batch_size)
        return self.done_steps % steps_per_epoch == 0 or self.done_steps == self.total_steps

    def _log(self, meter: Meter, now: float) -> dict[str, float]:
        (margin, reconstruction), steps_per_s = meter.read(now)
        if not math.isfinite(margin + reconstruction):
            raise TrainingError(
                f"the loss is not finite at step {self.done_steps}; the last checkpoint is kept"
            )
        return self._metrics.add(
            step=self.done_steps,
            epoch=self._epoch(),
            margin_loss=margin,
            reconstruction_loss=reconstruction,
            learning_rate=self.optimiser.param_groups[0]["lr"],
            images_per_s=steps_per_s * self.plan.recipe.batch_size,
            seconds=self.seconds,
        )

    def _validate(self, validation: Examples) -> dict[str, float]:
        return self._metrics.add(
            step=self.done_steps,
            epoch=self._epoch(),
            **self.task.errors(self.network, validation),
        )

    def _epoch(self) -> float:
        return self.done_steps * self.plan.recipe.batch_size / self.task.epoch_size


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
