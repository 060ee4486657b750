from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from research.__main__ import app, choose_rows
from research.page import STALE
from research.protocols import Sets
from research.rows import Row
from research.run import Result, read_results, write_results
from research.tables import ROWS, TABLES
from training.data.datasets import Examples
from training.state import TrainingError


@pytest.fixture
def small(tiny_row: Row, bars: Examples, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a row that runs in a moment, on bars."""
    monkeypatch.setitem(ROWS, tiny_row.name, replace(tiny_row, split="test"))
    monkeypatch.setattr("research.__main__.load_sets", lambda *_: Sets(bars, bars))
    return tiny_row.name


def call(*arguments: str, runs: Path, docs: Path) -> Outcome:
    options = ["--runs-dir", str(runs), "--docs-dir", str(docs)]
    if arguments[0] in ("write", "run"):
        options += ["--bundles", str(runs.parent / "bundles")]
    return CliRunner().invoke(app, [*arguments, *options])


def test_rows_are_chosen_by_name_pattern_and_table() -> None:
    """In the order given, each once."""
    names = ["matched-mnist-cnn-*", "matched-matrix", "matched-matrix-matrix-routed"]
    both = ["matched-mnist-cnn-large", "matched-mnist-cnn-small"]
    four = ["matrix-routed", "matrix-uniform", "matrix-poses", "cnn-small"]
    expected = [*both, *(f"matched-matrix-{name}" for name in four)]
    assert expected == [row.name for row in choose_rows(names)]


def test_an_unknown_name_is_refused() -> None:
    """With the tables that there are."""
    with pytest.raises(TrainingError, match=r"digits is no row and no table; there are matched-"):
        choose_rows(["matched-mnist", "digits"])


def test_seeds_must_be_numbers(small: str, tmp_path: Path) -> None:
    """Or the command says what they are."""
    outcome = call("run", small, "--seeds", "1;2", runs=tmp_path, docs=tmp_path)
    assert "seeds are numbers separated by commas, not 1;2" == str(outcome.exception)


def test_options_change_what_is_run(small: str, tmp_path: Path) -> None:
    """Another budget, several seeds, held-out images."""
    options = ["--seeds", "2,3", "--images", "8", "--validation", "--threads", "1"]
    outcome = call("run", small, *options, runs=tmp_path, docs=tmp_path / "docs")
    assert 0 == outcome.exit_code
    expected = [(seed, 8, "validation") for seed in (2, 3)]
    assert expected == [(one.seed, one.images, one.split) for one in read_results(tmp_path)]


def test_what_has_a_result_is_not_run_again(small: str, tmp_path: Path) -> None:
    """In the folder of runs; the same command runs what is left."""
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    assert "1 of 1 to run" in call("run", small, runs=runs, docs=docs).output
    assert "1 of 2 to run" in call("run", small, "--seeds", "1,2", runs=runs, docs=docs).output
    assert "0 of 1 to run" in call("run", small, runs=runs, docs=docs).output


def test_what_the_page_tells_is_run_again_on_a_fresh_clone(small: str, tmp_path: Path) -> None:
    """It runs the seeds of the page, and prints the errors of the page next to the new ones."""
    docs = tmp_path / "docs"
    docs.mkdir()
    call("run", small, runs=tmp_path / "runs", docs=docs)
    (result,) = read_results(tmp_path / "runs")
    write_results([result], docs / "results.json")
    again = call("run", small, runs=tmp_path / "clone", docs=docs)
    assert "1 of 1 to run" in again.output
    assert f"has plain {result.percent('plain'):.2f} %" in " ".join(again.output.split())
    assert [result.which] == [one.which for one in read_results(tmp_path / "clone")]


def test_a_seed_named_twice_is_run_once(small: str, tmp_path: Path) -> None:
    """It would read the test split twice."""
    outcome = call("run", small, "--seeds", "1,1", runs=tmp_path / "runs", docs=tmp_path)
    assert "1 of 1 to run" in outcome.output


def test_a_stop_ends_all(small: str, tmp_path: Path) -> None:
    """Rows after the one that was stopped are not begun, and the next call continues."""
    stop = ("run", small, "--seeds", "1,2", "--max-minutes", "0")
    outcome = call(*stop, runs=tmp_path, docs=tmp_path / "docs")
    assert "stopped; the same command continues" in outcome.output
    assert [] == list(tmp_path.glob("*seed2*"))
    assert 0 == call(*stop[:4], runs=tmp_path, docs=tmp_path / "docs").exit_code
    assert [1, 2] == [one.seed for one in read_results(tmp_path)]


def test_rows_are_listed_with_their_seeds(results: list[Result], tmp_path: Path) -> None:
    """Those of their own budget."""
    write_results(results, tmp_path / "results.json")
    output = call("list", runs=tmp_path / "none", docs=tmp_path).output
    assert all(f"{name}:\n" in output for name in TABLES)
    row = ROWS["matched-matrix-matrix-uniform"]
    assert f"  {row.name}, {row.title}, {row.images:,} images: seeds 1, 2\n" in output


def test_the_page_is_written_from_results(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials on held-out images of rows of the test split are left out; it is repeatable."""
    text = tmp_path / "text.md"
    text.write_text("{error(gone)}, {reads}\n")
    monkeypatch.setattr("research.page.TEXT", text)
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    runs.mkdir()
    docs.mkdir()
    gone = replace(results[0], row="gone", dataset="mnist", wrong={"plain": 100})
    for one in (*results, replace(results[0], split="validation"), gone):
        one.save(runs)
    assert 0 == call("write", runs=runs, docs=docs).exit_code
    page = (docs / "results.md").read_text()
    assert page.startswith("1.00 [0.82, 1.21], `assemblies` ")
    assert len(results) + 1 == len(read_results(docs / "results.json"))
    assert 0 == call("write", runs=tmp_path / "nothing new", docs=docs).exit_code
    assert page == (docs / "results.md").read_text()


def test_a_table_has_errors_differences_and_what_is_missing(
    results: list[Result], tmp_path: Path
) -> None:
    """Rows with their seeds, differences paired over images, and seeds that were not run."""
    wrong = {"matched-matrix-matrix-routed": range(100), "matched-matrix-cnn-small": range(160)}
    some = [
        replace(
            one,
            wrong={"plain": len(wrong[one.row])},
            which={"plain": [*wrong[one.row]]},
        )
        for one in results
        if one.row in wrong
    ]
    write_results(some, tmp_path / "results.json")
    output = call("table", "matched-matrix", runs=tmp_path / "none", docs=tmp_path).output
    routed, cnn = (ROWS[name].title for name in wrong)
    assert f"| {routed} | 60,000 | 1.00 ± 0.00 [0.80, 1.20] | 1, 2 |" in output
    assert f"| **{routed}** less **{cnn}** | error, % | -0.60 [" in output
    assert "`matched-matrix-matrix-routed`, `matched-matrix-cnn-small` (seed 3)" in output
    assert "`matched-matrix-matrix-poses` (seeds 1, 2, 3)" in output


def test_stale_rows_are_marked_and_not_compared(results: list[Result], tmp_path: Path) -> None:
    """Editing a recipe marks its results."""
    name = "matched-matrix-cnn-small"
    changed = [replace(one, recipe="0123456789ab") if one.row == name else one for one in results]
    write_results(changed, tmp_path / "results.json")
    output = call("table", "matched-matrix", runs=tmp_path / "none", docs=tmp_path).output
    title = ROWS[name].title
    assert f"| {title} (**{STALE}**) |" in output
    assert f"less **{title}**" not in output
    assert f"`{name}` (seeds 1, 2, 3)" in output
