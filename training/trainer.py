"""The training loop: the same code on a CPU and on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from training.curves import draw_curves
from training.datasets import Examples
from training.metrics import Meter, MetricsLog
from training.networks import Network
from training.plan import CURVES, METRICS, Plan, TrainingError
from training.progress import RunProgress
from training.schedule import learning_rate
from training.signals import stop_signals
from training.state import TrainingState
from training.tasks import make_task


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
        self.state = TrainingState(plan, device=device)
        if resume:
            self.state.restore()
        elif plan.checkpoint_path.exists():
            raise TrainingError(
                f"{plan.directory} already holds a run; continue it with --resume or choose "
                "another directory"
            )
        plan.directory.mkdir(parents=True, exist_ok=True)
        self._metrics = MetricsLog(plan.directory / METRICS, keep_until=self.done_steps)
        self.task = make_task(plan.recipe, plan.training, seed=plan.seed, device=device)

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return self.state.network

    @property
    def done_steps(self) -> int:
        """Steps so far."""
        return self.state.done_steps

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
        started, before = clock(), self.state.seconds
        saved = started
        meter = Meter(self.device, started)
        with (
            stop_signals() as stop,
            RunProgress(name, total=total, done=self.done_steps) as progress,
        ):
            while self.done_steps < total:
                meter.add(self.step())
                now = clock()
                self.state.seconds = before + now - started
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

    def step(self) -> Tensor:
        """One gradient step.

        Returns:
            (2,) margin and reconstruction loss, on the training device and detached.
        """
        rate = learning_rate(self.plan.recipe, self.done_steps, total=self.total_steps)
        for group in self.state.optimiser.param_groups:
            group["lr"] = rate
        margin, reconstruction = self.task.losses(self.network, self.done_steps)
        self.state.optimiser.zero_grad(set_to_none=True)
        (margin + self.plan.recipe.reconstruction_weight * reconstruction).backward()  # type: ignore[no-untyped-call]
        self.state.optimiser.step()
        self.state.done_steps += 1
        return torch.stack((margin, reconstruction)).detach()

    def save(self) -> None:
        """Write the checkpoint.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        self.state.save(examples=self.task.epoch_size)

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
            learning_rate=self.state.optimiser.param_groups[0]["lr"],
            images_per_s=steps_per_s * self.plan.recipe.batch_size,
            seconds=self.state.seconds,
        )

    def _validate(self, validation: Examples) -> dict[str, float]:
        return self._metrics.add(
            step=self.done_steps,
            epoch=self._epoch(),
            **self.task.errors(self.network, validation),
        )

    def _epoch(self) -> float:
        return self.done_steps * self.plan.recipe.batch_size / self.task.epoch_size
