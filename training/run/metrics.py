"""What a run measures of itself: mean losses, speed, and the file that keeps them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import Tensor

from training.hardware.processes import Processes


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line. Lines past `keep_until` steps are dropped.

    Args:
        writes: whether this process is the one that writes the file.
    """

    def __init__(self, path: Path, *, keep_until: int, writes: bool = True) -> None:
        self.path = path
        self._writes = writes
        if not writes:
            return
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if _step(line) <= keep_until]
        path.write_text("".join(f"{line}\n" for line in kept))

    def add(self, **values: float) -> dict[str, float]:
        """Append one line and give it back."""
        if self._writes:
            with self.path.open("a") as file:
                file.write(json.dumps(values) + "\n")
        return values


class Meter:
    """Mean losses and speed since it was last read. Adding does not wait for the device."""

    def __init__(self, device: torch.device, processes: Processes, now: float) -> None:
        self._sums = torch.zeros(2, device=device)
        self._processes = processes
        self._steps = 0
        self._since = now

    def add(self, losses: Tensor) -> None:
        """Count one step and this process's part of its losses (2,)."""
        self._sums += losses
        self._steps += 1

    def means(self) -> list[float]:
        """Mean losses over all processes; waits until the device has done all steps."""
        self._processes.add_up([self._sums])
        means: list[float] = (self._sums / self._steps).tolist()
        return means

    def restart(self, now: float) -> float:
        """Steps a second; starts anew."""
        rate = self._steps / max(now - self._since, 1e-9)
        self._sums.zero_()
        self._steps, self._since = 0, now
        return rate


def _step(line: str) -> float:
    """The step of a line of metrics; that of one cut off by a kill is infinite."""
    try:
        return float(json.loads(line)["step"])
    except json.JSONDecodeError:
        return math.inf
