"""Sizes and speeds of encoders, which `python -m benchmarks.sizes` measures for the page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from training.run.plan import TrainingError

BATCHES = ("1", "32")
"""Images at once, as JSON's keys."""


@dataclass(frozen=True)
class Encoder:
    """The exported encoder of a row's network."""

    row: str
    parameters: int
    bytes: int
    """Of the graph and of the weights that it reads."""
    images_per_s: dict[str, float]
    """By batch, on one CPU thread."""
    ratios: dict[str, float]
    """To the full-size encoder's in the same rounds, by batch."""


def read_encoders(path: Path) -> dict[str, Encoder]:
    """By row; none where there is no file.

    Raises:
        TrainingError: the file is not one that `write_encoders` wrote.
    """
    try:
        found = json.loads(path.read_text()) if path.exists() else []
        return {one.row: one for one in (Encoder(**values) for values in found)}
    except (ValueError, TypeError) as error:
        raise TrainingError(f"{path} does not hold encoders: {error}") from error


def write_encoders(encoders: Iterable[Encoder], path: Path) -> None:
    """One file of all, in the order given."""
    path.write_text(json.dumps([asdict(one) for one in encoders], indent=1) + "\n")
