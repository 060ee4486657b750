from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from training.data.datasets import Examples
from training.run.plan import TrainingError
from training.table.command import Job, app, choose_rows, run_jobs
from training.table.results import Result, read_results
from training.table.row import Row
from training.table.rows import ROWS
from training.table.running import Sets


def run_all(
    jobs: list[Job], bars: Examples, directory: Path, *, max_minutes: float = math.inf
) -> None:
    run_jobs(
        jobs,
        load=lambda _: Sets(bars, bars),
        directory=directory,
        device=torch.device("cpu"),
        max_minutes=max_minutes,
    )


def write(runs: Path, docs: Path) -> Outcome:
    options = ["write", "--runs-dir", str(runs), "--docs-dir", str(docs)]
    return CliRunner().invoke(app, options)


def test_rows_are_chosen_by_name_and_pattern() -> None:
    """Compact rows by default; names by comma."""
    assert [row for row in ROWS.values() if row.size == "compact"] == choose_rows("*-compact")
    names = "mnist-r3-paper-compact,multimnist-r?-paper"
    expected = ["multimnist-r1-paper", "multimnist-r3-paper", "mnist-r3-paper-compact"]
    assert expected == [row.name for row in choose_rows(names)]


def test_an_unknown_row_is_told() -> None:
    """With the names that there are."""
    with pytest.raises(TrainingError, match="mnist-r5 is no row; there are mnist-baseline, "):
        choose_rows("mnist-r3-paper,mnist-r5")


def test_options_change_what_is_run(
    bars: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another budget, several seeds; held-out digits are no page's business."""
    monkeypatch.setattr("training.table.command.load_sets", lambda *_: Sets(bars, bars))
    options = "--rows mnist-r3-none-compact --seeds 2,3 --budget 8 --validation --threads 1"
    outcome = CliRunner().invoke(app, ["run", *options.split(), "--runs-dir", str(tmp_path)])
    assert 0 == outcome.exit_code
    expected = [(seed, 8, "validation") for seed in (2, 3)]
    assert expected == [(one.seed, one.images, one.split) for one in read_results(tmp_path)]


def test_what_has_a_result_is_not_run_again(
    tiny_row: Row, bars: Examples, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command runs what is left: here another seed."""
    run_all([Job(tiny_row, 1)], bars, tmp_path)
    before = (tmp_path / f"{read_results(tmp_path)[0].key}.json").stat().st_mtime_ns
    run_all([Job(tiny_row, 1), Job(tiny_row, 2)], bars, tmp_path)
    assert "1 of 2 to run" in capsys.readouterr().out
    assert [1, 2] == [one.seed for one in read_results(tmp_path)]
    assert before == (tmp_path / f"{read_results(tmp_path)[0].key}.json").stat().st_mtime_ns


def test_a_stop_ends_all(
    tiny_row: Row, bars: Examples, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows after the one that was stopped are not begun."""
    run_all([Job(tiny_row, 1), Job(tiny_row, 2)], bars, tmp_path, max_minutes=0)
    assert "the same command goes on" in capsys.readouterr().out
    assert [] == list(tmp_path.glob("*seed2*"))


def test_the_page_is_written_from_results(results: list[Result], tmp_path: Path) -> None:
    """Trials on held-out digits of rows of the test split are left out; it is repeatable."""
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    runs.mkdir()
    docs.mkdir()
    for one in (*results, replace(results[0], split="validation")):
        one.save(runs)
    assert 0 == write(runs, docs).exit_code
    page = (docs / "results.md").read_text()
    assert len(results) == len(read_results(docs / "results.json"))
    assert (docs / "pictures" / "fewer-images.png").exists()
    assert 0 == write(tmp_path / "nothing new", docs).exit_code
    assert page == (docs / "results.md").read_text()


def test_a_page_without_all_compact_rows_is_not_written(
    results: list[Result], tmp_path: Path
) -> None:
    """The rows that are missing are named; those on held-out images may be."""
    for one in results:
        if one.split == "test" and one.row != "mnist-r1-none-compact":
            one.save(tmp_path)
    outcome = write(tmp_path, tmp_path / "docs")
    assert isinstance(outcome.exception, TrainingError)
    assert str(outcome.exception).endswith("--rows mnist-r1-none-compact")
