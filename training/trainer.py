"""The training loop: the same code on a CPU and on a GPU."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor, nn

from model.capsnet import CapsNet
from training.batches import Batch, BatchStream
from training.checkpoint import Checkpoint, CheckpointError
from training.curves import draw_curves
from training.datasets import Examples
from training.evaluation import error_percent
from training.losses import margin_loss, reconstruction_loss
from training.recipes import Recipe

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

    @property
    def total_steps(self) -> int:
        """Steps after which the run is complete."""
        images = self.recipe.epochs * len(self.training.labels)
        return math.ceil(images / self.recipe.batch_size)


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
        self._stream = BatchStream(
            plan.training,
            batch_size=plan.recipe.batch_size,
            shift_px=plan.recipe.shift_px,
            seed=plan.seed,
            device=device,
        )

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
        total = self.plan.total_steps
        started, before = clock(), self.seconds
        saved = started
        meter = Meter(self.device, started)
        with _stop_signals() as stop, _progress() as progress:
            bar = progress.add_task(
                self.plan.recipe.name, total=total, completed=self.done_steps, shown=""
            )
            while self.done_steps < total:
                meter.add(self.step())
                now = clock()
                self.seconds = before + now - started
                progress.update(bar, completed=self.done_steps)
                if self.done_steps % log_every == 0 or self.done_steps == total:
                    values = self._log(meter, now)
                    progress.update(bar, shown=_state(values))
                    if not progress.console.is_terminal:  # a log file gets lines, not a bar
                        progress.console.print(f"step {self.done_steps}/{total}: {_state(values)}")
                if self.plan.validation is not None and self._ends_epoch():
                    progress.console.print(_verdict(self._validate(self.plan.validation)))
                if now - saved > save_every_s:
                    self.save()
                    saved = now
                if stop() or now - started > 60 * max_minutes:
                    break
        self.save()
        draw_curves(self._metrics.path, self.plan.directory / CURVES, title=self.plan.recipe.name)
        return self.done_steps >= total

    def start_from(self, other: Checkpoint) -> None:
        """Take the weights of another run of the same network; the recipe starts anew.

        Raises:
            TrainingError: this run has begun, or its network has other sizes.
        """
        if self.done_steps:
            raise TrainingError("a run that has begun cannot take other weights")
        if other.recipe.network != self.plan.recipe.network:
            raise TrainingError(f"{other.recipe.name} is another network than this recipe's")
        self.network.load_state_dict(other.network)
        self._seconds_before = other.seconds_before + other.seconds
        self._started_from = f"{other.recipe.name}, seed {other.seed}, {other.step} steps"
        if other.started_from:
            self._started_from += f" (started from {other.started_from})"

    def step(self) -> Tensor:
        """One gradient step.

        Returns:
            (2,) margin and reconstruction loss, on the training device and detached.
        """
        batch = self._stream.batch(self.done_steps)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(
                self.plan.recipe, self.done_steps, total=self.plan.total_steps
            )
        margin, reconstruction = losses(self.network, batch, self.plan.recipe)
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
            examples=len(self._stream),
            seconds_before=self._seconds_before,
            started_from=self._started_from,
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
        self._started_from = checkpoint.started_from
        self._seconds_before = checkpoint.seconds_before

    def _ends_epoch(self) -> bool:
        steps_per_epoch = math.ceil(len(self._stream) / self.plan.recipe.batch_size)
        return self.done_steps % steps_per_epoch == 0 or self.done_steps == self.plan.total_steps

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
            validation_error_percent=error_percent(self.network, validation, device=self.device),
        )

    def _epoch(self) -> float:
        return self.done_steps * self.plan.recipe.batch_size / len(self._stream)


class Meter:
    """Mean losses and speed since it was last read. Adding does not wait for the device."""

    def __init__(self, device: torch.device, now: float) -> None:
        self._sums = torch.zeros(2, device=device)
        self._steps = 0
        self._since = now

    def add(self, losses: Tensor) -> None:
        """Count one step and its losses (2,)."""
        self._sums += losses
        self._steps += 1

    def read(self, now: float) -> tuple[list[float], float]:
        """Mean losses and steps a second; starts anew."""
        means = (self._sums / self._steps).tolist()
        rate = self._steps / max(now - self._since, 1e-9)
        self._sums.zero_()
        self._steps, self._since = 0, now
        return means, rate


def losses(network: CapsNet, batch: Batch, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Margin and reconstruction loss of one batch; bfloat16 convolutions on a GPU."""
    images = batch.images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        lengths, poses = network(images)
        present = nn.functional.one_hot(batch.labels, recipe.network.num_classes)
        margin = margin_loss(lengths, present.to(lengths.dtype))
    if recipe.reconstruction_weight == 0:
        return margin, torch.zeros_like(margin)
    own = poses[torch.arange(len(poses), device=poses.device), batch.labels]
    return margin, reconstruction_loss(network.decode(own, batch.labels), batch.images)


def learning_rate(recipe: Recipe, step: int, *, total: int) -> float:
    """Adam's rate at a step of a run of `total` steps."""
    warmup = min(1.0, (step + 1) / recipe.warmup_steps) if recipe.warmup_steps else 1.0
    if recipe.schedule == "exponential":
        decay = math.pow(recipe.decay_rate, step / recipe.decay_steps)
    else:
        decay = 0.5 * (1 + math.cos(math.pi * step / total))
    return recipe.learning_rate * warmup * decay


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line. Lines past `keep_until` steps are dropped."""

    def __init__(self, path: Path, *, keep_until: int) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if _step(line) <= keep_until]
        path.write_text("".join(f"{line}\n" for line in kept))

    def add(self, **values: float) -> dict[str, float]:
        """Append one line and give it back."""
        with self.path.open("a") as file:
            file.write(json.dumps(values) + "\n")
        return values


def _step(line: str) -> float:
    """The step of a line of metrics; that of one cut off by a kill is infinite."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return math.inf


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Within it, SIGTERM and SIGINT do not kill but make the yielded function say True."""
    received: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        received.append(signum)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )


def _state(values: dict[str, float]) -> str:
    return f"{values['images_per_s']:,.0f} images/s, margin {values['margin_loss']:.4f}"


def _verdict(values: dict[str, float]) -> str:
    return (
        f"epoch {values['epoch']:.2f}: {values['validation_error_percent']:.2f} % validation error"
    )
