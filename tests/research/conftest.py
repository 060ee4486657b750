"""Results as if all rows had been run, and a row that runs in a moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from research.controls import register
from research.rows import Row
from research.run import Result
from research.tables import ROWS
from tests.training.conftest import bars, tiny
from training.recipes import Recipe

__all__ = ["bars", "tiny"]


@pytest.fixture(autouse=True)
def _controls(families: None) -> None:  # noqa: ARG001
    """Controls are families, and gone after each test."""
    register()


@pytest.fixture(scope="session")
def results() -> list[Result]:
    """Two seeds of each row; 1 and 2 % wrong."""
    return [
        Result(
            row=row.name,
            dataset=row.recipe.dataset,
            seed=seed,
            images=row.images,
            split=row.split,
            minutes=1.5,
            device="CPU",
            tested=10_000,
            which=tuple(range(100 * seed)),
        )
        for row in ROWS.values()
        for seed in (1, 2)
    ]


@pytest.fixture(scope="session")
def tiny_row(tiny: Recipe) -> Row:
    """Three steps of eight bars."""
    row = ROWS["matched-few-100-dynamic-routed"]
    return replace(
        row, recipe=tiny, images=24, training_images=None, split="validation", seeds=(1,)
    )
