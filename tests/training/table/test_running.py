from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from training.data.datasets import Dataset, Examples
from training.data.pairs import PairSet, validation_pairs
from training.data.transforms import TRANSFORMS, digest, transform
from training.evaluation.answers import error_percent
from training.run.trainer import Trainer
from training.table.results import Result, read_results
from training.table.row import Row
from training.table.running import Sets, load_sets, make_plan, make_test_sets, run_row

CPU = torch.device("cpu")


@pytest.fixture
def sets(bars: Examples) -> Sets:
    """Bars to learn from, and the first of them to be tested on."""
    return Sets(bars, Examples(bars.images[:10], bars.labels[:10]))


def run(row: Row, sets: Sets, directory: Path, **options: float) -> Result | None:
    return run_row(row, seed=1, sets=sets, directory=directory, device=CPU, **options)


def test_a_result_is_the_trained_networks(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Its errors on each test set, rounded, and the digest of the one that was made."""
    plan = make_plan(tiny_row, seed=1, sets=sets, directory=tmp_path / "again")
    trainer = Trainer(plan, device=CPU)
    trainer.run()
    turned = transform(sets.tested, TRANSFORMS["turned"])
    expected = {
        "plain": error_percent(trainer.network, sets.tested, device=CPU),
        "turned": error_percent(trainer.network, turned, device=CPU),
    }
    result = run(tiny_row, sets, tmp_path)
    assert result
    assert pytest.approx(expected, abs=1e-4) == result.errors
    assert {"turned": digest(turned)} == result.digests
    assert [result] == read_results(tmp_path)


def test_a_stopped_row_goes_on(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Stopped after one step and continued, it ends as if run through; the checkpoint goes."""
    assert run(tiny_row, sets, tmp_path, max_minutes=0) is None
    assert [] == read_results(tmp_path)
    stopped, through = run(tiny_row, sets, tmp_path), run(tiny_row, sets, tmp_path / "through")
    assert stopped
    assert through
    assert through.errors == stopped.errors
    assert [] == list(tmp_path.rglob("checkpoint.pt"))


def test_the_budget_counts_images(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """However few there are to learn from, and rounded up to whole batches."""
    few = replace(tiny_row, training_images=6, images=20)
    trainer = Trainer(make_plan(few, seed=1, sets=sets, directory=tmp_path), device=CPU)
    assert (6, 3) == (trainer.task.epoch_size, trainer.total_steps)
    pairs = replace(few.recipe, task="pairs", network=replace(few.recipe.network, image_size=36))
    plan = make_plan(replace(few, recipe=pairs), seed=1, sets=sets, directory=tmp_path / "pairs")
    assert 3 == Trainer(plan, device=CPU).total_steps


def test_the_seed_chooses_fewer_images(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """As many of each class."""
    few = replace(tiny_row, training_images=6)
    first, other = (
        make_plan(few, seed=seed, sets=sets, directory=tmp_path).training for seed in (1, 2)
    )
    assert [2, 2, 2] == np.bincount(first.labels).tolist() == np.bincount(other.labels).tolist()


def test_pairs_are_made_of_the_tested_digits(
    tiny_row: Row, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each shift; those that validate, where the test split is not read."""
    monkeypatch.setattr("training.data.pairs.VALIDATION_PAIRS", 20)
    network = replace(tiny_row.recipe.network, image_size=36)
    recipe = replace(tiny_row.recipe, task="pairs", network=network)
    row = replace(tiny_row, recipe=recipe, tests=("shift 4", "shift 6"))
    for (name, pairs), shift_px in zip(make_test_sets(row, sets), (4, 6), strict=True):
        expected = validation_pairs(sets.tested, size=36, shift_px=shift_px)
        assert f"shift {shift_px}" == name
        assert isinstance(pairs, PairSet)
        assert np.array_equal(expected.images, pairs.images)


def test_rows_can_be_tried_without_the_test_split(
    tiny_row: Row, bars: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last training images of its data set are tested, and not learned from."""
    read = []

    def load(dataset: Dataset, split: str, _: Path) -> Examples:
        read.append((dataset.name, split))
        return bars

    monkeypatch.setattr("training.table.running.HELD_OUT", 4)
    monkeypatch.setattr("training.table.running.load", load)
    clothes = replace(tiny_row, recipe=replace(tiny_row.recipe, dataset="fashion-mnist"))
    training, tested = load_sets(clothes, tmp_path)
    assert (20, 4) == (len(training.labels), len(tested.labels))
    assert [("fashion-mnist", "train")] == read
    load_sets(replace(tiny_row, split="test"), tmp_path)
    assert [("mnist", "train"), ("mnist", "test")] == read[1:]
