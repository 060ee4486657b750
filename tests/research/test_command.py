from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from research.__main__ import app, choose_rows
from research.rows import Row
from research.run import Result, Sets, choose, load_sets, make_plan, read_results, run_row
from research.tables import ROWS
from training.answers import is_wrong, measure_presence
from training.data.datasets import DATASETS, Dataset, Examples
from training.provenance import TEST_READS
from training.state import TrainingError
from training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def small(tiny_row: Row, bars: Examples, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a row that runs in a moment, on bars."""
    monkeypatch.setitem(ROWS, tiny_row.name, replace(tiny_row, split="test"))
    monkeypatch.setattr("research.__main__.load_sets", lambda *_: Sets(bars, bars))
    return tiny_row.name


def write(results: list[Result], docs: Path) -> None:
    """The file of results in the docs."""
    (docs / "results.json").write_text(json.dumps([one.to_dict() for one in results]))


def call(*arguments: str, runs: Path, docs: Path) -> Outcome:
    options = ["--runs-dir", str(runs), "--docs-dir", str(docs)]
    return CliRunner().invoke(app, [*arguments, *options])


def test_what_is_wrongly_named_is_refused(small: str, tmp_path: Path) -> None:
    """With the tables that there are, or what seeds are."""
    with pytest.raises(TrainingError, match=r"digits is no row and no table; there are matched-"):
        choose_rows(["matched-few-100", "digits"])
    outcome = call("run", small, "--seeds", "1;2", runs=tmp_path, docs=tmp_path)
    assert "seeds are numbers separated by commas, not 1;2" == str(outcome.exception)


def test_what_has_a_result_is_not_run_again(small: str, tmp_path: Path) -> None:
    """In the folder of runs; the same command runs what is left."""
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    assert "1 of 1 to run" in call("run", small, runs=runs, docs=docs).output
    assert "1 of 2 to run" in call("run", small, "--seeds", "1,2", runs=runs, docs=docs).output
    assert "0 of 1 to run" in call("run", small, runs=runs, docs=docs).output


def test_a_stop_ends_all(small: str, tmp_path: Path) -> None:
    """Rows after the one that was stopped are not begun, and the next call continues."""
    stop = ("run", small, "--seeds", "1,2", "--max-minutes", "0")
    outcome = call(*stop, runs=tmp_path, docs=tmp_path / "docs")
    assert "stopped; the same command continues" in outcome.output
    assert [] == list(tmp_path.glob("*seed2*"))
    assert 0 == call(*stop[:4], runs=tmp_path, docs=tmp_path / "docs").exit_code
    assert [1, 2] == [one.seed for one in read_results(tmp_path)]


def test_a_table_has_errors_differences_and_what_is_missing(
    results: list[Result], tmp_path: Path
) -> None:
    """Rows with their seeds, differences paired over images, and seeds that were not run."""
    wrong = {"matched-few-100-attention-routed": 100, "matched-few-100-cnn-large": 160}
    write(
        [replace(one, which=tuple(range(wrong[one.row]))) for one in results if one.row in wrong],
        tmp_path,
    )
    output = call("table", "matched-few-100", runs=tmp_path / "none", docs=tmp_path).output
    routed, cnn = (ROWS[name].title for name in wrong)
    assert f"| {routed} | 40,000 | 1.00 ± 0.00 [0.80, 1.20] | 1, 2 |" in output
    assert f"| **{routed}** less **{cnn}** | -0.60 [" in output
    assert "`matched-few-100-attention-routed`, `matched-few-100-cnn-large` (seeds 3, 4" in output
    assert "`matched-few-100-dynamic-poses`" in output


def test_results_of_another_recipe_are_left_out(results: list[Result], tmp_path: Path) -> None:
    """Editing a recipe makes its row one that has not run; the list says why."""
    name = "matched-few-100-cnn-small"
    changed = [replace(one, recipe="0123456789ab") if one.row == name else one for one in results]
    write(changed, tmp_path)
    output = call("table", "matched-few-100", runs=tmp_path / "none", docs=tmp_path).output
    assert f"| `{name}` |" not in output
    assert f"less **{ROWS[name].title}**" not in output
    assert f"`{name}` (seeds 1, 2, 3, 4, 5)" in output
    assert "stale: 1, 2" in call("list", runs=tmp_path / "none", docs=tmp_path).output


@pytest.fixture
def sets(bars: Examples) -> Sets:
    """Bars to learn from, and the first of them to be tested on."""
    return Sets(bars, Examples(bars.images[:10], bars.labels[:10]))


def run(row: Row, sets: Sets, directory: Path, **options: float) -> Result | None:
    return run_row(
        row, seed=1, sets=sets, directory=directory, bundles=directory, device=CPU, **options
    )


def test_a_result_is_the_trained_networks(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Its error, also if it was stopped and continued."""
    plan = make_plan(tiny_row, seed=1, training=sets.training, directory=tmp_path / "again")
    trainer = Trainer(plan, device=CPU)
    trainer.run()
    assert run(tiny_row, sets, tmp_path, max_minutes=0) is None
    assert [] == read_results(tmp_path)
    result = run(tiny_row, sets, tmp_path)
    assert result
    presence = measure_presence(trainer.network, sets.tested.images, CPU)
    expected = 100 * is_wrong(presence, sets.tested.labels).mean()
    assert pytest.approx(expected) == result.percent
    assert [result] == read_results(tmp_path)


def test_every_read_of_a_test_split_is_on_record(tiny_row: Row, sets: Sets, tmp_path: Path) -> None:
    """Beside the bundles, with the row; held-out images are read as often as one likes."""
    run(tiny_row, sets, tmp_path)
    assert not (tmp_path / TEST_READS).exists()
    result = run(replace(tiny_row, split="test"), sets, tmp_path)
    assert result is not None
    (line,) = (tmp_path / TEST_READS).read_text().splitlines()
    read = json.loads(line)
    assert ("test", 10, len(result.which)) == (read["split"], read["images"], read["errors"])
    assert f"research row {tiny_row.name}-seed1-24" == read["protocol"]


def test_the_test_split_is_read_for_rows_that_are_tested_on_it(
    tiny_row: Row, bars: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the others the last training images are held out."""
    read = []

    def load(_: Dataset, split: str, __: Path) -> Examples:
        read.append(split)
        return bars

    monkeypatch.setattr("research.run.load", load)
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], held_out_count=4))
    tried = load_sets(tiny_row, tmp_path)
    assert (20, 4) == (len(tried.training.labels), len(tried.tested.labels))
    assert 24 == len(load_sets(replace(tiny_row, split="test"), tmp_path).training.labels)
    assert ["train", "train", "test"] == read


@pytest.mark.parametrize("content", ["{", '{"row": "mnist"}', '[{"row": "mnist", "colour": 1}]'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    """Half a file, or one with other keys, is an error that names it."""
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(TrainingError, match=r"one.json does not hold results"):
        read_results(tmp_path)


def test_the_seed_chooses_as_many_images_of_each_class() -> None:
    """The same ones for the same seed, others for another; a count that classes cannot share."""
    labels = np.repeat([0, 1, 2], [50, 20, 30])
    digits = Examples(np.arange(100, dtype=np.uint8)[:, None, None, None], labels)
    first, again, other = (choose(digits, 30, seed=seed) for seed in (1, 1, 2))
    assert [10, 10, 10] == np.bincount(first.labels).tolist()
    assert 30 == len(np.unique(first.images))
    np.testing.assert_array_equal(first.images, again.images)
    assert (first.images != other.images).any()
    for count in (0, 7, 63):
        with pytest.raises(ValueError, match="equally"):
            choose(digits, count, seed=1)
