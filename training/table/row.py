"""What a row of the table is, and a section of the page that shows rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from training.paper import Reported
from training.recipes import PRESETS, Recipe

Size = Literal["full", "compact"]
Split = Literal["test", "validation"]
"""What is tested on; `validation` are the last training images, which are then not learned from."""

SIZES: tuple[Size, ...] = ("full", "compact")
BUDGETS = {
    ("full", "digits"): 7_200_000,
    ("full", "pairs"): 30_000_000,
    ("compact", "digits"): 60_000,
    ("compact", "pairs"): 50_000,
}
"""Images that a row is trained with, of a size and a task. Those of the compact rows suit a CPU."""
COMPACT_WARMUP_STEPS = 100
_SECONDS = {
    "mnist-compact": (1.1, 3.5),
    "fashion-mnist-compact": (1.1, 3.5),
    "mnist-baseline-compact": (0.95, 3.0),
    "multimnist-compact": (2.2, 8.0),
    "multimnist-baseline-compact": (1.8, 6.0),
}
"""Of two CPU cores, by preset: for training with a thousand images and for a test set."""


@dataclass(frozen=True)
class Row:
    """One network that is trained with a fixed number of images and tested once."""

    stem: str
    """Name without the size."""
    size: Size
    title: str
    preset: str
    recipe: Recipe
    """Its epochs are those of the preset; the budget decides how long it is trained."""
    images: int
    """The budget: images or pairs seen in training."""
    tests: tuple[str, ...]
    """Names of test sets; the first one's error is the paper's measure."""
    training_images: int | None = None
    """Distinct images to learn from, as many of each class; None for all."""
    split: Split = "test"

    @property
    def name(self) -> str:
        """The stem, and `-compact` for compact networks."""
        return row_name(self.stem, self.size)

    @property
    def seconds(self) -> float:
        """What it takes on two CPU cores, roughly; infinite for full-size rows."""
        if self.preset not in _SECONDS:
            return math.inf
        thousand, test = _SECONDS[self.preset]
        return self.images / 1000 * thousand + len(self.tests) * test


@dataclass(frozen=True)
class Section:
    """A table of the page."""

    title: str
    text: str
    stems: tuple[str, ...]
    columns: dict[str, str]
    """Test sets and their headings."""
    paper: dict[str, Reported] = field(default_factory=dict)
    """By stem; without any the column is left out."""
    picture: str = ""
    """File name in docs/pictures."""
    encoders: bool = False
    """Whether sizes and speeds of the encoders stand beside the errors."""


def row_name(stem: str, size: str) -> str:
    """The stem alone for full-size rows."""
    return stem if size == "full" else f"{stem}-{size}"


def make_row(stem: str, size: Size, title: str, preset: str) -> Row:
    """A preset's network at the budget of its size, on the first test sets of its task.

    Args:
        preset: of the full-size network.
    """
    preset = preset if size == "full" else f"{preset}-compact"
    recipe = PRESETS[preset]
    if size == "compact":
        recipe = replace(recipe, warmup_steps=COMPACT_WARMUP_STEPS)
    tests = ("shift 4", "shift 6") if recipe.task == "pairs" else ("plain",)
    return Row(stem, size, title, preset, recipe, BUDGETS[size, recipe.task], tests)
