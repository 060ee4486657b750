"""Results as if all compact rows had been run, encoders, and a row that runs in a moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from training.recipes import Recipe
from training.table.encoders import BATCHES, Encoder
from training.table.results import Result
from training.table.row import Row
from training.table.rows import ROWS


@pytest.fixture(scope="session")
def results() -> list[Result]:
    """Two seeds of each compact row; the errors are 1 and 2 %, and 10 more for each test set."""
    return [
        Result(
            row=row.name,
            seed=seed,
            images=row.images,
            split=row.split,
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
def encoders() -> dict[str, Encoder]:
    """Two of them: 1,000 and 2,000 images per second at batch 32."""
    names = ("held-out-mnist-compact", "held-out-mnist-32x4-compact")
    return {
        name: Encoder(
            row=name,
            parameters=1_234_567,
            bytes=1_230_000,
            images_per_s=dict.fromkeys(BATCHES, 1000.0 * place),
            ratios=dict.fromkeys(BATCHES, 5.0 * place),
        )
        for place, name in enumerate(names, start=1)
    }


@pytest.fixture(scope="session")
def tiny_row(tiny: Recipe) -> Row:
    """Three steps of eight bars."""
    row = ROWS["mnist-r3-paper-compact"]
    return replace(row, recipe=tiny, images=24, tests=("plain", "turned"), split="validation")
