"""Results as if all compact rows had been run, and a row that runs in a moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training.recipes import Recipe
from training.table.results import Result
from training.table.rows import ROWS, Row


@pytest.fixture(scope="session")
def results() -> list[Result]:
    """Two seeds of each compact row; the errors are 1 and 2 %, and 10 more for each test set."""
    return [
        Result(
            row=row.name,
            seed=seed,
            images=row.images,
            split="test",
            errors={name: 10.0 * place + seed for place, name in enumerate(row.tests)},
            digests={name: f"{name} digest" for name in row.tests if name == "turned"},
            minutes=1.5,
            device="CPU",
            command="python -m training table run",
        )
        for row in ROWS.values()
        if row.size == "compact"
        for seed in (1, 2)
    ]


@pytest.fixture(scope="session")
def tiny_row(tiny: Recipe) -> Row:
    """Three steps of eight bars."""
    row = ROWS["mnist-r3-paper-compact"]
    return replace(row, recipe=tiny, images=24, tests=("plain", "turned"))
