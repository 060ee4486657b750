"""Compute, store and show the metrics of a run: mean losses and speed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn
from torch import Tensor

from training.device import Processes
from training.losses import Losses
from training.state import TrainingError

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
STEPS = "steps"
LOSS = "_loss"
"""The suffix of mean losses in the names of metrics."""
VALIDATION_ERROR = "validation_error_percent"
CLASS_ERROR = "validation_class_error_percent"
"""The mean over classes of the percentage of wrong answers, where classes count evenly."""


class Meter:
    """Averages losses and speed since it was last read. Adding does not wait for the device.

    Args:
        before: what `sums` said when the run was stopped.
    """

    def __init__(
        self, processes: Processes, now: float, before: Mapping[str, float] | None = None
    ) -> None:
        self._processes, self._before = processes, dict(before or {})
        self._sums: Tensor | None = None
        self._steps, self._since = 0, now

    def add(self, losses: Losses) -> None:
        """Count one step and this process's part of its losses."""
        values = torch.stack(list(losses.values()))
        self._terms = list(losses)
        self._sums = values if self._sums is None else self._sums + values
        self._steps += 1

    def sums(self) -> dict[str, float]:
        """Return the summed losses over all processes, by term, and the number of `steps`.

        Waits until the device has done all steps.
        """
        if self._sums is None:
            return self._before
        total = self._sums.double()
        self._processes.add_up([total])
        sums = dict(zip([*self._terms, STEPS], [*total.tolist(), self._steps], strict=True))
        return {name: value + self._before.get(name, 0) for name, value in sums.items()}

    def means(self) -> dict[str, float]:
        """Return the mean losses over all processes.

        This waits until the device has done all steps.
        """
        sums = self.sums()
        steps = sums.pop(STEPS)
        return {f"{name}{LOSS}": value / steps for name, value in sums.items()}

    def restart(self, now: float) -> float:
        """Return the steps a second of this process, and start anew."""
        rate = self._steps / max(now - self._since, 1e-9)
        self._sums, self._steps, self._since, self._before = None, 0, now, {}
        return rate


class RunLog:
    """Stores and shows metrics: `metrics.jsonl`, a progress bar or lines, TensorBoard if asked for.

    Args:
        directory: of the run. Lines of its metrics past `keep_until` steps are dropped.
        tensorboard: whether to write the same values for TensorBoard.
        quiet: neither write nor show anything.

    Raises:
        TrainingError: TensorBoard is not installed.
    """

    def __init__(
        self, directory: Path, *, keep_until: int, tensorboard: bool = False, quiet: bool = False
    ) -> None:
        self.path = directory / METRICS
        self._quiet = quiet
        self._board: Any = None
        if quiet:
            return
        if tensorboard:
            self._board = _open_board(directory / TENSORBOARD, keep_until)
        directory.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        kept = [line for line in lines if _step(line) <= keep_until]
        self.path.write_text("".join(f"{line}\n" for line in kept))

    @contextmanager
    def shown(self, name: str, *, total: int, done: int) -> Iterator[None]:
        """Show a progress bar of `total` steps within the context, on a terminal."""
        self._progress = Progress(
            *Progress.get_default_columns(),
            TextColumn("{task.fields[shown]}"),
            console=Console(quiet=self._quiet),
        )
        self._bar = self._progress.add_task(name, total=total, completed=done, shown="")
        with self._progress:
            yield
        if self._board is not None:
            self._board.flush()

    def advance(self, step: int) -> None:
        """Move the progress bar."""
        self._progress.update(self._bar, completed=step)

    def add(self, **values: float) -> None:
        """Append one line, `step` and `epoch` among its values, and show its main values.

        Only while the bar is shown.
        """
        if self._quiet:
            return
        with self.path.open("a") as file:
            file.write(json.dumps(values) + "\n")
        if self._board is not None:
            for name in values.keys() - {"step"}:
                self._board.add_scalar(name, values[name], int(values["step"]))
        if VALIDATION_ERROR in values:
            error, epoch = values[VALIDATION_ERROR], values["epoch"]
            self._progress.console.print(f"epoch {epoch:.2f}: {error:.2f} % validation error")
        else:
            self._show_losses(values)

    def _show_losses(self, values: dict[str, float]) -> None:
        losses = ", ".join(
            f"{name.removesuffix(LOSS)} {value:.4f}"
            for name, value in values.items()
            if name.endswith(LOSS)
        )
        state = f"{values['images_per_s']:,.0f} images/s, {losses}"
        self._progress.update(self._bar, shown=state)
        if not self._progress.console.is_terminal:
            total = self._progress.tasks[self._bar].total
            self._progress.console.print(f"step {values['step']}/{total}: {state}")


def _open_board(directory: Path, done: int) -> Any:
    """TensorBoard's writer, which forgets what an interrupted run wrote past `done` steps."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  only where asked for
    except ImportError as error:
        raise TrainingError("--tensorboard needs the package tensorboard: install it") from error
    return SummaryWriter(str(directory), purge_step=done + 1)


def _step(line: str) -> float:
    """The step of a line of metrics; that of one cut off by a kill is infinite."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return math.inf
