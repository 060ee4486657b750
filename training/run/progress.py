"""What a run shows while it goes on: a bar on a terminal, lines in a log file."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class RunProgress:
    """The progress of one run of `total` steps; a context manager.

    Args:
        quiet: show nothing.
    """

    def __init__(self, name: str, *, total: int, done: int, quiet: bool = False) -> None:
        self._total = total
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=Console(quiet=quiet),
        )
        self._bar = self._progress.add_task(name, total=total, completed=done, shown="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def advance_to(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._bar, completed=step)

    def show(self, step: int, values: dict[str, float]) -> None:
        """Tell speed and loss of one line of metrics."""
        state = f"{values['images_per_s']:,.0f} images/s, margin {values['margin_loss']:.4f}"
        self._progress.update(self._bar, shown=state)
        if not self._progress.console.is_terminal:
            self._progress.console.print(f"step {step}/{self._total}: {state}")

    def show_validation(self, values: dict[str, float]) -> None:
        """Tell the validation error at the end of an epoch."""
        error = values["validation_error_percent"]
        self._progress.console.print(f"epoch {values['epoch']:.2f}: {error:.2f} % validation error")
