"""The training loop, the same on a CPU and on a GPU."""

from __future__ import annotations

import json
import math
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.capsnet import Network, build
from model.capsnet.decoder import ClassCodes
from model.capsnet.stem import Whitening
from model.preprocess import WHITE
from training.data.augment import moved_copies
from training.device import Replay, Work, choose_threads, convolution_precision, device_name
from training.losses import Losses, total_loss
from training.metrics import CLASS_ERROR, VALIDATION_ERROR, RunLog
from training.muon import make_optimisers, set_rates
from training.pretrained import find_weights, load_weights, remember_features
from training.provenance import Run
from training.recipes import Recipe
from training.state import (
    Best,
    Checkpoint,
    CheckpointError,
    Plan,
    RunningAverage,
    TrainingError,
    freeze,
)
from training.tasks import PREVIEW, Task

MIN_STEPS = 25
"""The fewest steps between validations where the best weights are kept: epochs may have fewer."""
FITTED, FITTED_AT_END = 256, 2048
"""About the number of images to which the statistics of averaged weights are fitted."""
_WHITENED = 1000
"""The number of training images that fit a whitening layer."""
_DECAY, _DECAY_STEPS = 0.96, 2000
"""The factor of the exponential schedule, by so many steps."""


class Trainer:
    """Trains one network, which the plan's seed initialises. `run` is the loop around `step`.

    Args:
        resume: continue from the directory's checkpoint instead of starting anew.
        replay: whether a GPU replays the steps as a CUDA graph.

    Raises:
        TrainingError: the directory already holds a run and `resume` was not asked for, the
            checkpoint there belongs to another recipe, seed or split, or the recipe freezes what is
            not there, or everything.
        SettingError: the package with the weights of a pretrained stem is not installed.
        CheckpointError: the checkpoint is missing or corrupt, or its weights do not fit.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        device: torch.device,
        resume: bool = False,
        replay: bool = True,
    ) -> None:
        recipe = plan.recipe
        self.plan = plan
        self.device = device
        torch.manual_seed(plan.seed)
        self.network: Network = build(recipe.network).to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if recipe.pretrained and not resume:
            load_weights(self.network, find_weights())
        self._frozen = freeze(self.network, recipe.frozen)
        self._fit_layers()
        self.optimisers = make_optimisers(self.network, recipe, on_gpu=device.type == "cuda")
        decay = recipe.average_decay
        self.average = (
            RunningAverage(self.network, decay=decay, frozen=self._frozen) if decay else None
        )
        """The running average of the weights, if the recipe wants it."""
        run = Run(
            id=secrets.token_hex(8),
            preset=recipe.name,
            dataset=recipe.dataset,
            task=recipe.task,
            seed=plan.seed,
            held_out=plan.held_out_count,
            recipe=json.loads(json.dumps(recipe.to_dict())),
            command=plan.command,
        )
        self.runs = [run]
        """The runs that made the weights: this one is the last, after those it started from."""
        self.best: Best | None = None
        self.error_percent: float | None = None
        """The error on held-out images at the last validation, in percent."""
        if resume:
            self._restore()
        elif plan.checkpoint_path.exists():
            raise TrainingError(
                f"{plan.directory} already holds a run; continue it with --resume or choose "
                "another --run-dir or --seed"
            )
        run, precision = self.runs[-1], convolution_precision(recipe.convolutions, device)
        self._record(
            devices=tuple(dict.fromkeys((*run.devices, device_name(device)))),
            convolutions=tuple(dict.fromkeys((*run.convolutions, precision))),
        )
        self._log = RunLog(plan.directory, keep_until=self.done_steps)
        if device.type == "cpu":
            remember_features(self.network, self.result)
        self.task = Task(recipe, plan.training, seed=plan.seed, device=device)
        replays = replay and device.type == "cuda"
        self.work: Work = Replay(self._work, device=device) if replays else self._work
        """What a step does on the device."""

    @property
    def result(self) -> Network:
        """The network that is validated and exported: the trained one, or its running average."""
        return self.network if self.average is None else self.average.network

    @property
    def done_steps(self) -> int:
        """The number of steps so far."""
        return self.runs[-1].steps

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
        before = self.runs[-1].seconds
        name, done = self.plan.recipe.name, self.done_steps
        shown = self._log.shown(name, total=self.total_steps, done=done)
        with stop_signals() as stopped, shown:
            while not self.complete:
                self._log.count(self.step())
                now = clock()
                self._record(seconds=before + now - start)
                if self.done_steps % log_every == 0 or self.complete:
                    self._log.add_losses(
                        step=self.done_steps,
                        epoch=self._epoch,
                        batch_size=self.plan.recipe.batch_size,
                        learning_rate=float(self.optimisers[0].param_groups[0]["lr"]),
                        seconds=self.runs[-1].seconds,
                    )
                self._validate()
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
        done = self.done_steps
        set_rates(self.optimisers, learning_rate(self.plan.recipe, done, total=self.total_steps))
        if self.average is not None:
            self.average.set_share(done)
        torch.manual_seed(self.plan.seed * 1_000_003 + done)  # of dropout
        self.network.train()
        for module in self._frozen:
            module.eval()
        step = torch.full((), float(done), device=self.device)
        losses = self.work(self.task.batches.rows(done), step)
        self._record(steps=done + 1, images=(done + 1) * self.plan.recipe.batch_size)
        return losses

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
        own, weights = self.runs[-1], self.network.state_dict()
        if own.steps:
            raise TrainingError("cannot load weights into a run that has started")
        if not fitting and other.recipe.network != self.plan.recipe.network:
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
        self.runs = [*before, replace(last, taken=tuple(taken) if fitting else ()), own]
        return tuple(taken)

    def save(self) -> None:
        """Write the checkpoint. The result of a complete run becomes the best, if one is kept.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            raise TrainingError(
                f"a weight is not finite at step {self.done_steps}; the last checkpoint is kept"
            )
        self._fit_statistics()
        progress: dict[str, Any] = {}
        if not self.complete:
            progress = {
                "trained": self.network.state_dict(),
                "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
                "best": self.best and self.best._asdict(),
            }
        elif self.best:
            self.result.load_state_dict(self.best.weights)
            self._record(kept_step=self.best.step)
        Checkpoint(
            recipe=self.plan.recipe,
            pictures=self.plan.split,
            examples=self.task.batches.rows_per_epoch,
            runs=tuple(self.runs),
            network=self.result.state_dict(),
            progress=progress,
        ).save(self.plan.checkpoint_path)

    def _restore(self) -> None:
        """Restore the run's checkpoint."""
        plan, path = self.plan, self.plan.checkpoint_path
        saved = Checkpoint.load(path)
        others = [
            field.name
            for field in fields(Recipe)
            if getattr(plan.recipe, field.name) != getattr(saved.recipe, field.name)
        ]
        run = saved.runs[-1]
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
                    group["capturable"] = self.device.type == "cuda"
                self.best = saved.progress["best"] and Best(**saved.progress["best"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path} does not fit: {error}") from error
        self.runs = list(saved.runs)

    def _record(self, **changes: Any) -> None:
        """Change the record of this run."""
        self.runs[-1] = replace(self.runs[-1], **changes)

    def _fit_layers(self) -> None:
        """Fit the layers that begin with statistics of training images."""
        plan, count = self.plan, len(self.plan.training.labels)
        evenly = np.arange(min(count, _WHITENED)) * count // min(count, _WHITENED)
        for part in self.network.modules():
            if isinstance(part, Whitening):
                some = torch.tensor(plan.training.images[evenly], device=self.device)
                part.fit(some.float() / WHITE)
            if isinstance(part, ClassCodes):
                part.fit(*moved_copies(plan.training, plan.recipe, device=self.device))

    def _work(self, rows: Tensor, step: Tensor) -> Losses:
        """Compute gradients from the rows of a batch, and move the weights."""
        losses = self.task.losses(self.network, rows, step)
        self.network.zero_grad(set_to_none=True)
        total_loss(losses, self.plan.recipe).backward()  # type: ignore[no-untyped-call]
        for optimiser in self.optimisers:
            optimiser.step()
        if self.average is not None:
            self.average.add(self.network)
        return {name: loss.detach() for name, loss in losses.items()}

    @property
    def _epoch(self) -> float:
        """The epochs done, at most those of the recipe: the last batch may exceed them."""
        done = self.done_steps * self.plan.recipe.batch_size / self.task.batches.rows_per_epoch
        return min(done, self.plan.recipe.epochs)

    def _fit_statistics(self) -> None:
        """Fit the statistics of averaged weights to the latest images; to more when complete."""
        batches, count = self.task.batches, FITTED_AT_END if self.complete else FITTED
        steps = min(self.done_steps, math.ceil(count / self.plan.recipe.batch_size))
        if steps and self.average is not None:
            rows = [batches.rows(self.done_steps - 1 - step) for step in range(steps)]
            self.average.fit_statistics(batches.make(torch.cat(rows)).images)

    def _validate(self) -> None:
        """Measure the error on what is held out after each epoch, and in the end."""
        validation = self.plan.validation
        every = math.ceil(self.task.batches.rows_per_epoch / self.plan.recipe.batch_size)
        every = max(every, MIN_STEPS) if self.plan.recipe.keep == "best" else every
        if self.done_steps % every and not self.complete:
            return
        self._fit_statistics()
        if validation:
            errors = self.task.errors(self.result, validation)
            self.error_percent = errors[VALIDATION_ERROR]
            self._log.add_errors(step=self.done_steps, epoch=self._epoch, **errors)
            if self.plan.recipe.keep == "best":
                self._keep_if_best(errors.get(CLASS_ERROR, self.error_percent))
        self.task.draw(self.result, validation, self.plan.directory / PREVIEW)

    def _keep_if_best(self, class_error_percent: float) -> None:
        """Keep the result as the best if it has the fewest errors, as the mean over classes."""
        if not self.best or class_error_percent <= self.best.class_error_percent:
            weights = self.result.state_dict()
            copies = {name: weight.to("cpu", copy=True) for name, weight in weights.items()}
            assert self.error_percent is not None
            self.best = Best(self.error_percent, class_error_percent, self.done_steps, copies)


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
