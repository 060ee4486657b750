"""The rows of the table: which networks are compared, how they are trained and on what tested."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from training.paper import (
    AFFNIST,
    AFFNIST_BASELINE,
    MNIST,
    MNIST_BASELINE,
    MULTIMNIST,
    MULTIMNIST_BASELINE,
    Reported,
)
from training.recipes import PRESETS, Recipe
from training.transforms import TRANSFORMS

Size = Literal["full", "compact"]

SIZES: tuple[Size, ...] = ("full", "compact")
BUDGETS = {
    ("full", "digits"): 7_200_000,
    ("full", "pairs"): 30_000_000,
    ("compact", "digits"): 60_000,
    ("compact", "pairs"): 50_000,
}
"""Images that a row is trained with, of a size and a task. Those of the compact rows suit a CPU."""
COMPACT_WARMUP_STEPS = 100
FEWER = (100, 1000, 10_000)
"""Training images of the rows that learn from less."""
TRANSFORMED = ("mnist-baseline", "mnist-r3-paper")
"""Stems of the rows that are also tested on transformed digits."""
_RECONSTRUCTION = {
    "none": "no reconstruction",
    "paper": "reconstruction",
    "paper-code": "reconstruction 20 times stronger, as in the paper's code",
}
_SECONDS = {
    "mnist-compact": (1.1, 3.5),
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

    @property
    def name(self) -> str:
        """The stem, and `-compact` for compact networks."""
        return self.stem if self.size == "full" else f"{self.stem}-{self.size}"

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
    paper: dict[str, Reported]
    """By stem."""
    picture: str = ""
    """File name in docs/pictures."""


def _rows(size: Size) -> Iterator[Row]:
    for task in ("mnist", "multimnist"):
        yield _baseline(task, size)
        for iterations, weight in product((1, 3), ("none", "paper")):
            yield _capsnet(task, size, iterations=iterations, reconstruction=weight)
    yield _capsnet("mnist", size, reconstruction="paper-code")
    last = _capsnet("mnist", size, routing_gradient="last")
    yield replace(
        last,
        stem=f"{last.stem}-last",
        title=f"{last.title}, gradient through the last iteration alone",
        tests=("plain",),
    )
    for count in FEWER:
        for row in (_baseline("mnist", size), _capsnet("mnist", size)):
            yield replace(
                row,
                stem=f"{row.stem}-{count}",
                title=f"{row.title}, {count:,} images",
                training_images=count,
                tests=("plain",),
            )


def _baseline(task: str, size: Size) -> Row:
    return _row(f"{task}-baseline", size, "baseline CNN", f"{task}-baseline")


def _capsnet(
    task: str, size: Size, *, iterations: int = 3, reconstruction: Any = "paper", **network: Any
) -> Row:
    plural = "s" if iterations > 1 else ""
    row = _row(
        f"{task}-r{iterations}-{reconstruction}",
        size,
        f"CapsNet, {iterations} iteration{plural}, {_RECONSTRUCTION[reconstruction]}",
        task,
    )
    sizes = replace(row.recipe.network, routing_iterations=iterations, **network)
    return replace(row, recipe=replace(row.recipe, network=sizes, reconstruction=reconstruction))


def _row(stem: str, size: Size, title: str, preset: str) -> Row:
    preset = preset if size == "full" else f"{preset}-compact"
    recipe = PRESETS[preset]
    if size == "compact":
        recipe = replace(recipe, warmup_steps=COMPACT_WARMUP_STEPS)
    tests: tuple[str, ...] = ("shift 4", "shift 6") if recipe.task == "pairs" else ("plain",)
    if stem in TRANSFORMED:
        tests += tuple(TRANSFORMS)
    return Row(stem, size, title, preset, recipe, BUDGETS[size, recipe.task], tests)


def _stems(task: str) -> tuple[str, ...]:
    capsules = (f"{task}-r{r}-{weight}" for r, weight in product((1, 3), ("none", "paper")))
    return (f"{task}-baseline", *capsules)


ROWS = {row.name: row for size in SIZES for row in _rows(size)}

SECTIONS = (
    Section(
        "MNIST",
        "The paper's figures are means of three trainings of about 640 epochs.",
        _stems("mnist"),
        {"plain": "error, %"},
        {
            "mnist-baseline": MNIST_BASELINE,
            **{f"mnist-r{r}-{weight}": figure for (r, weight), figure in MNIST.items()},
        },
    ),
    Section(
        "MultiMNIST",
        "Two overlapping digits; a pair is wrong unless both are named. The paper shifts digits by "
        "up to 4 pixels and trains with 60 million pairs.",
        _stems("multimnist"),
        {"shift 4": "pairs wrong, %", "shift 6": "shifted by up to 6 px"},
        {
            "multimnist-baseline": MULTIMNIST_BASELINE,
            **{f"multimnist-r{r}-{weight}": figure for (r, weight), figure in MULTIMNIST.items()},
        },
    ),
    Section(
        "Choices",
        "The weight of the reconstruction, and which routing iterations the gradient goes through.",
        ("mnist-r3-none", "mnist-r3-paper", "mnist-r3-paper-code", "mnist-r3-paper-last"),
        {"plain": "error, %"},
        {"mnist-r3-none": MNIST[3, "none"], "mnist-r3-paper": MNIST[3, "paper"]},
    ),
    Section(
        "Fewer training images",
        "As many of each class, chosen by the seed; all rows see the same number of images, so "
        "those of smaller sets come more often.",
        tuple(
            f"{stem}{part}"
            for stem in TRANSFORMED
            for part in (*(f"-{count}" for count in FEWER), "")
        ),
        {"plain": "error, %"},
        {},
        "fewer-images.png",
    ),
    Section(
        "Transformed digits",
        "Networks that saw digits moved by up to 2 pixels, on digits moved, turned, scaled and "
        "sheared: docs/training.md says how. The paper's figures are those of affNIST, 40x40 "
        "pixels, and belong beside `affine 100 %` only as a hint.",
        TRANSFORMED,
        {"plain": "as they are", **{name: name for name in TRANSFORMS}},
        {"mnist-baseline": AFFNIST_BASELINE, "mnist-r3-paper": AFFNIST},
        "transformed-digits.png",
    ),
)
