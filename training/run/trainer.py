"""The training loop: the same code on a CPU and on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.data.datasets import Examples
from training.hardware.cuda_graph import Recording
from training.hardware.processes import Processes
from training.run.curves import draw_curves
from training.run.metrics import Meter, MetricsLog
from training.run.networks import Network
from training.run.plan import CURVES, METRICS, Plan, TrainingError
from training.run.progress import RunProgress
from training.run.schedule import learning_rate
from training.run.signals import stop_signals
from training.run.state import TrainingState
from training.tasks.task import make_task

_ALONE = Processes()


class Trainer:
    """Trains one network step by step; `run` is the loop around `step`.

    Args:
        resume: continue from the directory's checkpoint instead of starting anew.
        processes: those that share each batch; one alone by default.

    Raises:
        TrainingError: the directory already holds a run and `resume` was not asked for, the
            checkpoint there belongs to another recipe, seed or split, or there are more processes
            than images in a batch.
        CheckpointError: the checkpoint is missing or corrupt.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        device: torch.device,
        resume: bool = False,
        processes: Processes = _ALONE,
    ) -> None:
        if processes.count > plan.recipe.batch_size:
            raise TrainingError(
                f"{processes.count} processes cannot share {plan.recipe.batch_size} images"
            )
        self.plan = plan
        self.device = device
        self.processes = processes
        self.state = TrainingState(plan, device=device)
        if resume:
            self.state.restore()
        elif plan.checkpoint_path.exists():
            raise TrainingError(
                f"{plan.directory} already holds a run; continue it with --resume or choose "
                "another directory"
            )
        if processes.leads:
            plan.directory.mkdir(parents=True, exist_ok=True)
        self._metrics = MetricsLog(
            plan.directory / METRICS, keep_until=self.done_steps, writes=processes.leads
        )
        self._losses = Recording(self._descend) if device.type == "cuda" else self._descend
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
        name, total, leads = self.plan.recipe.name, self.total_steps, self.processes.leads
        started, before = clock(), self.state.seconds
        saved = started
        meter = Meter(self.device, self.processes, started)
        with (
            stop_signals() as stopped,
            RunProgress(name, total=total, done=self.done_steps, quiet=not leads) as progress,
        ):
            while self.done_steps < total:
                meter.add(self.step())
                logs = self.done_steps % log_every == 0 or self.done_steps == total
                losses = self._read(meter) if logs else []
                now = clock()
                self.state.seconds = before + now - started
                progress.advance_to(self.done_steps)
                if logs:
                    progress.show(self.done_steps, self._log(losses, meter.restart(now)))
                if leads and self.plan.validation is not None and self._ends_epoch():
                    progress.show_validation(self._validate(self.plan.validation))
                time_is_up = now - started > 60 * max_minutes
                save, stop = self.processes.any(now - saved > save_every_s, stopped() or time_is_up)
                if save:
                    self.save()
                    saved = now
                if stop:
                    break
            self.save()
        if leads:
            draw_curves(self._metrics.path, self.plan.directory / CURVES, title=name)
        return self.done_steps >= total

    def step(self) -> Tensor:
        """One gradient step, of the whole batch; this process computes its share.

        Returns:
            (2,) margin and reconstruction loss on the training device, detached: this process's
            part of the batch's means, so that those of all processes add up to them. On a GPU
            the next step overwrites it.
        """
        rate = learning_rate(self.plan.recipe, self.done_steps, total=self.total_steps)
        for group in self.state.optimiser.param_groups:
            group["lr"] = rate
        losses = self._losses(self.processes.share(self.task.draw(self.done_steps)))
        self.processes.add_up(
            [weight.grad for weight in self.network.parameters() if weight.grad is not None]
        )
        self.state.step()
        return losses

    def save(self) -> None:
        """Write the checkpoint.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        self.state.check()
        if self.processes.leads:
            complete = self.done_steps >= self.total_steps
            self.state.save(examples=self.task.epoch_size, complete=complete)

    def _descend(self, drawn: Sequence[Tensor]) -> Tensor:
        """Losses (2,) of some rows of a batch, as parts of its means; leaves their gradient."""
        share = len(drawn[0]) / self.plan.recipe.batch_size
        losses = torch.stack(self.task.losses(self.network, drawn)) * share
        self.network.zero_grad(set_to_none=True)
        (losses[0] + self.plan.recipe.reconstruction_weight * losses[1]).backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def _ends_epoch(self) -> bool:
        steps_per_epoch = math.ceil(self.task.epoch_size / self.plan.recipe.batch_size)
        return self.done_steps % steps_per_epoch == 0 or self.done_steps == self.total_steps

    def _read(self, meter: Meter) -> list[float]:
        losses = meter.means()
        if not math.isfinite(sum(losses)):
            raise TrainingError(
                f"the loss is not finite at step {self.done_steps}; the last checkpoint is kept"
            )
        return losses

    def _log(self, losses: list[float], steps_per_s: float) -> dict[str, float]:
        margin, reconstruction = losses
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
            **self.task.errors(self.state.result, validation),
        )

    def _epoch(self) -> float:
        return self.done_steps * self.plan.recipe.batch_size / self.task.epoch_size
