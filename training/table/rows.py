"""The rows of the table: which networks are compared, how they are trained and on what tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from training.data.transforms import TRANSFORMS
from training.paper import (
    AFFNIST,
    AFFNIST_BASELINE,
    MNIST,
    MNIST_BASELINE,
    MULTIMNIST,
    MULTIMNIST_BASELINE,
)
from training.table.choices import CHOICE_SECTIONS, choice_rows
from training.table.row import SIZES, Row, Section, Size, make_row

FEWER = (100, 1000, 10_000)
"""Training images of the rows that learn from less."""
TRANSFORMED = ("mnist-baseline", "mnist-r3-paper")
"""Stems of the rows that are also tested on transformed digits."""
_RECONSTRUCTION = {
    "none": "no reconstruction",
    "paper": "reconstruction",
    "paper-code": "reconstruction 20 times stronger, as in the paper's code",
}


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
    row = make_row(stem, size, title, preset)
    return replace(row, tests=(*row.tests, *TRANSFORMS)) if stem in TRANSFORMED else row


def _stems(task: str) -> tuple[str, ...]:
    capsules = (f"{task}-r{r}-{weight}" for r, weight in product((1, 3), ("none", "paper")))
    return (f"{task}-baseline", *capsules)


ROWS = {row.name: row for row in (*(row for size in SIZES for row in _rows(size)), *choice_rows())}

SECTIONS = (
    Section(
        "MNIST",
        "The paper's figures are means of three trainings; its code runs for about 640 epochs.",
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
        picture="fewer-images.png",
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
    *CHOICE_SECTIONS,
)
