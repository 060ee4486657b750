"""What rows learn, where they stop and what they are tested on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from research.protocols import STOP_EVERY, Sets, load_sets, make_test_sets
from research.rows import FAMILIAR, NEW_AZIMUTHS, Row
from research.run import make_plan, run_row
from training.data import assemblies
from training.data.assemblies import VIEWS, is_familiar, list_factors
from training.data.datasets import DATASETS, Dataset, Examples
from training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Examples:
    """A data set of numbered images in the order of assemblies, of two training instances."""
    monkeypatch.setattr(assemblies, "INSTANCES", {"train": range(2), "test": range(2, 3)})

    def read(_: Dataset, split: str, __: Path) -> Examples:
        labels = list_factors(split).label  # type: ignore[arg-type]
        images = np.zeros((len(labels), 1, 2, 2), np.uint8)
        images[:, 0].reshape(-1, 4)[:, :2] = np.arange(len(labels))[:, None] // (1, 256) % 256
        return Examples(images, labels)

    monkeypatch.setattr("research.protocols.load", read)
    return read(DATASETS["assemblies"], "test", Path())


def test_assemblies_are_learnt_from_a_third_of_the_azimuths(
    tiny_row: Row, toys: Examples, tmp_path: Path
) -> None:
    """Training stops on another instance at these azimuths; tests show both kinds."""
    row = replace(
        tiny_row,
        recipe=replace(tiny_row.recipe, dataset="assemblies"),
        split="test",
        tests=(FAMILIAR, NEW_AZIMUTHS),
        protocol="azimuths",
        stop_percent=5.0,
    )
    sets = load_sets(row, tmp_path)
    assert sets.stopping is not None
    third = 5 * VIEWS // 3
    assert [third, third] == [len(one.labels) for one in (sets.training, sets.stopping)]
    familiar, new = (dict(make_test_sets(row, sets.tested))[name].examples for name in row.tests)
    assert [third, 2 * third] == [len(familiar.labels), len(new.labels)]
    rows = is_familiar(len(toys.labels))
    assert np.array_equal(toys.images[rows], familiar.images)
    assert np.array_equal(toys.images[~rows], new.images)


def test_training_stops_at_an_error(
    tiny_row: Row, bars: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result says after how many images; at an error that is not reached the budget counts."""
    monkeypatch.setitem(STOP_EVERY, "plain", 1)
    easy = replace(tiny_row, stop_percent=100.0, images=64)
    sets = Sets(bars, bars, stopping=bars)
    found = run_row(easy, seed=1, sets=sets, directory=tmp_path, bundles=tmp_path, device=CPU)
    assert found is not None
    assert 8 == found.trained_images
    hard = replace(easy, stop_percent=-1.0, name="hard")
    found = run_row(hard, seed=1, sets=sets, directory=tmp_path, bundles=tmp_path, device=CPU)
    assert found is not None
    assert 64 == found.trained_images


def test_a_run_that_reached_its_error_stays_there(
    tiny_row: Row, bars: Examples, tmp_path: Path
) -> None:
    """Killed between training and testing, it is not trained further."""
    plan = make_plan(
        replace(tiny_row, images=64), seed=1, training=bars, directory=tmp_path, validation=bars
    )
    first = Trainer(plan, device=CPU)
    assert first.run(validate_every=1, stop_percent=100.0, max_minutes=math.inf)
    again = Trainer(plan, device=CPU, resume=True)
    assert again.run(validate_every=1, stop_percent=100.0)
    assert 1 == again.done_steps == first.done_steps
