from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from research.protocols import Sets, choose, load_sets, make_test_sets
from research.rows import Row
from research.run import Result, make_plan, read_results, run_row, write_results
from training.answers import error_percent
from training.data.datasets import DATASETS, Dataset, Examples
from training.data.pairs import PairSet, validation_pairs
from training.provenance import TEST_READS
from training.state import TrainingError
from training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def sets(bars: Examples) -> Sets:
    """Bars to learn from, and the first of them to be tested on."""
    return Sets(bars, Examples(bars.images[:10], bars.labels[:10]))


def run(row: Row, sets: Sets, directory: Path, **options: float) -> Result | None:
    return run_row(
        row, seed=1, sets=sets, directory=directory, bundles=directory, device=CPU, **options
    )


def test_a_result_is_the_trained_networks(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Its errors on each test set."""
    plan = make_plan(tiny_row, seed=1, training=sets.training, directory=tmp_path / "again")
    trainer = Trainer(plan, device=CPU)
    trainer.run()
    result = run(tiny_row, sets, tmp_path)
    assert result
    expected = error_percent(trainer.network, sets.tested, CPU)
    assert pytest.approx(expected) == result.percent("plain")
    assert [result] == read_results(tmp_path)


def test_a_stopped_row_goes_on(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Stopped after one step and continued, it ends as if run through."""
    row = tiny_row
    assert run(row, sets, tmp_path, max_minutes=0) is None
    assert [] == read_results(tmp_path)
    stopped, through = run(row, sets, tmp_path), run(row, sets, tmp_path / "through")
    assert stopped
    assert through
    assert through.which == stopped.which


def test_the_budget_counts_images(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """However few there are to learn from, and rounded up to whole batches."""
    few = replace(tiny_row, training_images=6, images=20)
    trainer = Trainer(
        make_plan(few, seed=1, training=sets.training, directory=tmp_path), device=CPU
    )
    assert (6, 3) == (len(trainer.task.batches), trainer.total_steps)


def test_the_seed_chooses_fewer_images(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """As many of each class."""
    few = replace(tiny_row, training_images=6)
    first, other = (
        make_plan(few, seed=seed, training=sets.training, directory=tmp_path).training
        for seed in (1, 2)
    )
    assert [2, 2, 2] == np.bincount(first.labels).tolist() == np.bincount(other.labels).tolist()


def test_pairs_are_made_of_the_tested_digits(
    tiny_row: Row, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the size of the network and the shift."""
    for module in ("training.data.pairs", "research.protocols"):
        monkeypatch.setattr(f"{module}.VALIDATION_PAIRS", 20)
    network = replace(tiny_row.recipe.network, height=36, width=36)
    recipe = replace(tiny_row.recipe, task="pairs", network=network)
    row = replace(tiny_row, recipe=recipe, tests=("shift 4",))
    made = dict(make_test_sets(row, sets.tested))
    expected = validation_pairs(sets.tested, size=36, shift_px=4)
    pairs, digits = made["shift 4"]
    assert isinstance(pairs, PairSet)
    assert np.array_equal(expected.images, pairs.images)
    assert digits is not None
    assert np.array_equal(pairs.labels, sets.tested.labels[digits])


def test_the_test_split_is_read_for_rows_that_are_tested_on_it(
    tiny_row: Row, bars: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the others the last training images are held out."""
    read = []

    def load(_: Dataset, split: str, __: Path) -> Examples:
        read.append(split)
        return bars

    monkeypatch.setattr("research.protocols.load", load)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], held_out_count=4))
    tried = load_sets(tiny_row, tmp_path)
    assert (20, 4) == (len(tried.training.labels), len(tried.tested.labels))
    assert ["train"] == read
    plain = load_sets(replace(tiny_row, split="test"), tmp_path)
    held = load_sets(replace(tiny_row, split="test", hold_out=True), tmp_path)
    assert [24, 20] == [len(one.training.labels) for one in (plain, held)]
    assert ["train", "train", "test", "train", "test"] == read


def test_every_read_of_a_test_split_is_on_record(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Beside the bundles, with the row; held-out images are read as often as one likes."""
    run(tiny_row, sets, tmp_path)
    assert not (tmp_path / TEST_READS).exists()
    result = run(replace(tiny_row, split="test"), sets, tmp_path)
    assert result is not None
    (line,) = (tmp_path / TEST_READS).read_text().splitlines()
    read = json.loads(line)
    assert ("test", 10, result.wrong["plain"]) == (read["split"], read["images"], read["errors"])
    assert f"research row {tiny_row.name}-seed1-24: plain" == read["protocol"]


def test_results_survive_being_written(results: list[Result], tmp_path: Path) -> None:
    """Together in their order, and one by one."""
    write_results(results, tmp_path / "all.json")
    assert results == read_results(tmp_path / "all.json")
    folder = tmp_path / "each"
    folder.mkdir()
    for one in results:
        one.save(folder)
    assert sorted(results, key=lambda one: one.key) == read_results(folder)
    assert [] == read_results(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["{", '{"row": "mnist"}', '[{"row": "mnist", "colour": 1}]'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    """Half a file, or one with other keys, is an error that names it."""
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(TrainingError, match=r"one.json does not hold results"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change", [{"row": "other"}, {"seed": 3}, {"images": 7}, {"split": "validation"}], ids=str
)
def test_results_that_differ_are_kept_apart(results: list[Result], change: dict[str, str]) -> None:
    """By row, seed, budget and split."""
    assert results[0].key != replace(results[0], **change).key  # type: ignore[arg-type]


def digits_of(counts: dict[int, int]) -> Examples:
    """So many images of each label; the first pixel is the image's number."""
    labels = np.repeat(list(counts), list(counts.values()))
    images = np.zeros((len(labels), 1, 2, 2), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    return Examples(images, labels)


def test_chosen_examples_are_as_many_of_each_class() -> None:
    """However many there are to choose from, and none is taken twice."""
    chosen = choose(digits_of({0: 50, 1: 20, 2: 30}), 30, seed=1)
    assert [10, 10, 10] == np.bincount(chosen.labels).tolist()
    assert 30 == len(set(chosen.images[:, 0, 0, 0].tolist()))


def test_the_seed_chooses() -> None:
    """The same ones for the same seed, others for another; fewer are among more."""
    digits = digits_of({0: 50, 1: 50})
    first, again, other, more = (
        set(choose(digits, count, seed=seed).images[:, 0, 0, 0].tolist())
        for seed, count in ((1, 20), (1, 20), (2, 20), (1, 40))
    )
    assert first == again
    assert first != other
    assert first < more


@pytest.mark.parametrize("count", [0, 7, 42])
def test_classes_share_equally_or_not_at_all(count: int) -> None:
    """An odd count, none, or more than the rarest class has is refused."""
    with pytest.raises(ValueError, match="equally"):
        choose(digits_of({0: 50, 1: 20}), count, seed=1)
