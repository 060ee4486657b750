"""The training loop, the same on a CPU and on a GPU."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import torch
from torch import Tensor

from model.capsnet import Network
from training.device import Replay, Work, choose_threads
from training.losses import Losses, total_loss
from training.metrics import CLASS_ERROR, VALIDATION_ERROR, Meter, RunLog
from training.pretrained import remember_features
from training.recipes import Recipe
from training.state import Plan, TrainingError, TrainingState
from training.tasks import PREVIEW, Task

MIN_STEPS = 25
"""The fewest steps between validations where the best weights are kept: epochs may have fewer."""
FITTED, FITTED_AT_END = 256, 2048
"""About the number of images to which the statistics of averaged weights are fitted."""
_DECAY, _DECAY_STEPS = 0.96, 2000
"""The factor of the exponential schedule, by so many steps."""


class Trainer:
    """Trains one network. `run` is the loop around `step`.

    Args:
        resume: continue from the directory's checkpoint instead of starting anew.
        replay: whether a GPU replays the steps as a CUDA graph.

    Raises:
        TrainingError: the directory already holds a run and `resume` was not asked for, the
            checkpoint there belongs to another recipe, seed or split, or the recipe freezes what is
            not there.
        CheckpointError: the checkpoint is missing or corrupt.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        device: torch.device,
        resume: bool = False,
        replay: bool = True,
    ) -> None:
        self.plan = plan
        self.device = device
        self.state = TrainingState(plan, device=device)
        if resume:
            self.state.restore()
        elif plan.checkpoint_path.exists():
            raise TrainingError(
                f"{plan.directory} already holds a run; continue it with --resume or choose "
                "another --run-dir or --seed"
            )
        self._log = RunLog(plan.directory, keep_until=self.done_steps)
        self.error_percent: float | None = None
        """The error on held-out images at the last validation, in percent."""
        if device.type == "cpu":
            remember_features(self.state.network, self.state.result)
        self.task = Task(plan.recipe, plan.training, seed=plan.seed, device=device)
        replays = replay and device.type == "cuda"
        self.work: Work = Replay(self._work, device=device) if replays else self._work
        """What a step does on the device."""

    @property
    def network(self) -> Network:
        """The network that is trained."""
        return self.state.network

    @property
    def done_steps(self) -> int:
        """The number of steps so far."""
        return self.state.run.steps

    @property
    def total_steps(self) -> int:
        """The number of steps after which the run is complete."""
        images = self.plan.recipe.epochs * self.task.batches.rows_per_epoch
        # a fractional number of epochs must not round up to one step more
        return math.ceil(round(images, 6) / self.plan.recipe.batch_size)

    @property
    def complete(self) -> bool:
        """Whether all epochs are done."""
        return self.done_steps >= self.total_steps

    def run(
        self,
        *,
        max_minutes: float = math.inf,
        log_every: int = 100,
        save_every_s: float = 120,
        clock: Callable[[], float] = time.monotonic,
        adapts_threads: bool = False,
    ) -> bool:
        """Train until the recipe ends, the time is up or SIGTERM or SIGINT arrives.

        The state is saved then, and every `save_every_s` seconds before.

        Args:
            log_every: steps from one line of metrics to the next.
            clock: seconds; looked at once in the beginning and once a step.
            adapts_threads: whether the number of CPU threads is chosen in the beginning and at each
                save: see `training.device.choose_threads`.

        Returns:
            whether the recipe was completed.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        if adapts_threads:
            choose_threads()
        start = saved = clock()
        before = self.state.run.seconds
        meter = Meter()
        name, done = self.plan.recipe.name, self.done_steps
        shown = self._log.shown(name, total=self.total_steps, done=done)
        with stop_signals() as stopped, shown:
            while not self.complete:
                meter.add(self.step())
                logged = self.done_steps % log_every == 0 or self.complete
                now = clock()
                self.state.run = replace(self.state.run, seconds=before + now - start)
                if logged:
                    self._add_losses(*meter.read())
                self._validate()
                self._log.advance(self.done_steps)
                if now - saved > save_every_s:
                    self.save()
                    saved = now
                    if adapts_threads:
                        choose_threads()
                if stopped() or now - start > 60 * max_minutes:
                    break
            self.save()
        return self.complete

    def step(self) -> Losses:
        """Do one gradient step.

        Returns:
            terms of the loss, detached scalars on the training device: means over the batch. The
            next step may overwrite them.
        """
        recipe, done = self.plan.recipe, self.done_steps
        self.state.begin_step(learning_rate(recipe, done, total=self.total_steps))
        step = torch.full((), float(done), device=self.device)
        losses = self.work(self.task.batches.rows(done), step)
        self.state.end_step()
        return losses

    def save(self) -> None:
        """Write the checkpoint.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            raise TrainingError(
                f"a weight is not finite at step {self.done_steps}; the last checkpoint is kept"
            )
        self._fit_statistics()
        self.state.save(examples=self.task.batches.rows_per_epoch, complete=self.complete)

    def _work(self, rows: Tensor, step: Tensor) -> Losses:
        """Compute gradients from the rows of a batch, and move the weights."""
        losses = self.task.losses(self.network, rows, step)
        self.network.zero_grad(set_to_none=True)
        total_loss(losses, self.plan.recipe).backward()  # type: ignore[no-untyped-call]
        self.state.move()
        return {name: loss.detach() for name, loss in losses.items()}

    @property
    def _epoch(self) -> float:
        """The epochs done, at most those of the recipe: the last batch may exceed them."""
        done = self.done_steps * self.plan.recipe.batch_size / self.task.batches.rows_per_epoch
        return min(done, self.plan.recipe.epochs)

    def _add_losses(self, losses: dict[str, float], steps_per_s: float) -> None:
        self._log.add(
            step=self.done_steps,
            epoch=self._epoch,
            **losses,
            learning_rate=float(self.state.optimisers[0].param_groups[0]["lr"]),
            images_per_s=steps_per_s * self.plan.recipe.batch_size,
            seconds=self.state.run.seconds,
        )

    def _fit_statistics(self) -> None:
        """Fit the statistics of averaged weights to the latest images; to more when complete."""
        batches, count = self.task.batches, FITTED_AT_END if self.complete else FITTED
        steps = min(self.done_steps, math.ceil(count / self.plan.recipe.batch_size))
        if steps and self.state.average is not None:
            rows = [batches.rows(self.done_steps - 1 - step) for step in range(steps)]
            self.state.average.fit_statistics(batches.make(torch.cat(rows)).images)

    def _validate(self) -> None:
        """Measure the error on what is held out after each epoch, and in the end."""
        validation = self.plan.validation
        every = math.ceil(self.task.batches.rows_per_epoch / self.plan.recipe.batch_size)
        every = max(every, MIN_STEPS) if self.plan.recipe.keep == "best" else every
        if self.done_steps % every and not self.complete:
            return
        self._fit_statistics()
        if validation:
            errors = self.task.errors(self.state.result, validation)
            self.error_percent = errors[VALIDATION_ERROR]
            self._log.add(step=self.done_steps, epoch=self._epoch, **errors)
            self.state.keep_if_best(self.error_percent, errors.get(CLASS_ERROR, self.error_percent))
        self.task.draw(self.state.result, validation, self.plan.directory / PREVIEW)


def learning_rate(recipe: Recipe, step: int, *, total: int) -> float:
    """Return Adam's learning rate at a step of a run of `total` steps."""
    warmup_steps = min(recipe.warmup_steps, total // 10)
    warmup = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    if recipe.schedule == "exponential":
        decay = math.pow(_DECAY, step / _DECAY_STEPS)
    else:
        decay = 0.5 * (1 + math.cos(math.pi * step / total))
    return recipe.learning_rate * warmup * decay


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Catch SIGTERM and SIGINT within the context. The yielded function says whether one came."""
    received: list[int] = []

    def record(signum: int, _frame: FrameType | None) -> None:
        received.append(signum)

    before = {number: signal.signal(number, record) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
