"""Compute, store and show the metrics of a run: mean losses and speed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.progress import Progress, TextColumn
from torch import Tensor

from training.losses import Losses

METRICS = "metrics.jsonl"
LOSS = "_loss"
"""The suffix of mean losses in the names of metrics."""
VALIDATION_ERROR = "validation_error_percent"
CLASS_ERROR = "validation_class_error_percent"
"""The mean over classes of the percentage of wrong answers, where classes count evenly."""


class RunLog:
    """Stores and shows a run's metrics: `metrics.jsonl`, and a progress bar or lines.

    Losses and speed are means since they were last logged.

    Args:
        directory: of the run. Lines of its metrics past `keep_until` steps are dropped.
    """

    def __init__(self, directory: Path, *, keep_until: int) -> None:
        self.path = directory / METRICS
        directory.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        kept = [line for line in lines if _step(line) <= keep_until]
        self.path.write_text("".join(f"{line}\n" for line in kept))

    @contextmanager
    def shown(self, name: str, *, total: int, done: int) -> Iterator[None]:
        """Show a progress bar of `total` steps within the context, on a terminal."""
        self._progress = Progress(
            *Progress.get_default_columns(), TextColumn("{task.fields[shown]}")
        )
        self._bar = self._progress.add_task(name, total=total, completed=done, shown="")
        self._steps, self._since = 0, time.monotonic()
        with self._progress:
            yield

    def count(self, losses: Losses) -> None:
        """Count one step and its losses, without waiting for the device, and move the bar."""
        values = torch.stack(list(losses.values()))
        self._names = list(losses)
        self._sums: Tensor = self._sums + values if self._steps else values
        self._steps += 1
        self._progress.advance(self._bar)

    def add_losses(self, *, batch_size: int, **values: float) -> None:
        """Append a line with the mean losses and the speed, after the device has done all steps."""
        means = (self._sums.double() / self._steps).tolist()
        losses = dict(zip(self._names, means, strict=True))
        now = time.monotonic()
        images_per_s = self._steps * batch_size / max(now - self._since, 1e-9)
        self._steps, self._since = 0, now
        named = {f"{name}{LOSS}": mean for name, mean in losses.items()}
        self._write({**values, **named, "images_per_s": images_per_s})
        state = f"{images_per_s:,.0f} images/s, "
        state += ", ".join(f"{name} {mean:.4f}" for name, mean in losses.items())
        self._progress.update(self._bar, shown=state)
        if not self._progress.console.is_terminal:
            total = self._progress.tasks[self._bar].total
            self._progress.console.print(f"step {values['step']}/{total}: {state}")

    def add_errors(self, **values: float) -> None:
        """Append a line with the errors on held-out images, `step` and `epoch`, and print it."""
        self._write(values)
        error, epoch = values[VALIDATION_ERROR], values["epoch"]
        self._progress.console.print(f"epoch {epoch:.2f}: {error:.2f} % validation error")

    def _write(self, values: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(values) + "\n")


def _step(line: str) -> float:
    """The step of a line of metrics; that of one cut off by a kill is infinite."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return math.inf
