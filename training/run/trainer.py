"""The training loop: the same code on a CPU and on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

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
from training.run.timer import Timer
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
        return math.ceil(round(images, 6) / self.plan.recipe.batch_size)  # epochs may be a third

    @property
    def complete(self) -> bool:
        """Whether all of them are done."""
        return self.done_steps >= self.total_steps

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
        timer = Timer(
            clock,
            before=self.state.seconds,
            max_minutes=max_minutes,
            save_every_s=save_every_s,
        )
        with stop_signals() as stopped, self._progress() as progress:
            for metrics in self._steps(timer, log_every):
                progress.advance_to(self.done_steps)
                if metrics:
                    progress.show(self.done_steps, metrics)
                if errors := self._validate():
                    progress.show_validation(errors)
                save, stop = self.processes.any(timer.save_is_due, stopped() or timer.is_up)
                if save:
                    self.save()
                    timer.note_save()
                if stop:
                    break
            self.save()
        if self.processes.leads:
            self._draw_curves()
        return self.complete

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
            self.state.save(examples=self.task.epoch_size, complete=self.complete)

    def _steps(self, timer: Timer, log_every: int) -> Iterator[dict[str, float] | None]:
        """Train step by step to the end; gives the metrics of those steps that are logged."""
        meter = Meter(self.device, self.processes, timer.now)
        while not self.complete:
            meter.add(self.step())
            logged = self.done_steps % log_every == 0 or self.complete
            losses = self._read(meter) if logged else None
            self.state.seconds = timer.tick()
            yield self._log(losses, meter.restart(timer.now)) if losses else None

    def _descend(self, drawn: Sequence[Tensor]) -> Tensor:
        """Losses (2,) of some rows of a batch, as parts of its means; leaves their gradient."""
        share = len(drawn[0]) / self.plan.recipe.batch_size
        losses = torch.stack(self.task.losses(self.network, drawn)) * share
        self.network.zero_grad(set_to_none=True)
        (losses[0] + self.plan.recipe.reconstruction_weight * losses[1]).backward()  # type: ignore[no-untyped-call]
        return losses.detach()

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

    def _validate(self) -> dict[str, float] | None:
        """Metrics on what is held out, where an epoch ends and this process leads."""
        held_out = self.plan.validation
        if held_out is None or not self.processes.leads or not self._ends_epoch():
            return None
        errors = self.task.errors(self.state.result, held_out)
        return self._metrics.add(step=self.done_steps, epoch=self._epoch(), **errors)

    def _ends_epoch(self) -> bool:
        steps_per_epoch = math.ceil(self.task.epoch_size / self.plan.recipe.batch_size)
        return self.done_steps % steps_per_epoch == 0 or self.complete

    def _epoch(self) -> float:
        return self.done_steps * self.plan.recipe.batch_size / self.task.epoch_size

    def _progress(self) -> RunProgress:
        return RunProgress(
            self.plan.recipe.name,
            total=self.total_steps,
            done=self.done_steps,
            quiet=not self.processes.leads,
        )

    def _draw_curves(self) -> None:
        target = self.plan.directory / CURVES
        draw_curves(self._metrics.path, target, title=self.plan.recipe.name)
