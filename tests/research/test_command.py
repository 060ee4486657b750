from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from model.bundle import Bundle, write_manifest
from research.__main__ import app, choose_rows
from research.protocols import Sets
from research.rows import Row
from research.run import Result, read_results, write_results
from research.tables import ROWS, TABLES
from tests.training.published import RUN, say_training
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


def test_rows_are_chosen_by_name_pattern_and_experiment() -> None:
    """In the order given, each once."""
    names = ["digits-r?-none", "em-iterations", "em-mean-1"]
    brief = ["em-mean-1", "em-mean-2", "em-mean-3", "em-sum-3"]
    expected = ["digits-r1-none", "digits-r3-none", *brief]
    assert expected == [row.name for row in choose_rows(names)]


def test_an_unknown_name_is_refused() -> None:
    """With the tables that there are."""
    with pytest.raises(
        TrainingError, match=r"digits-r5 is no row and no table; there are matched-mnist"
    ):
        choose_rows(["digits", "digits-r5"])


def test_the_folder_of_a_run_is_no_bundle(tmp_path: Path) -> None:
    """The message names the command that makes a bundle of a run, before any folder is missed."""
    run = tmp_path / "run"
    run.mkdir()
    outcome = call("routing", str(run), runs=tmp_path, docs=tmp_path / "gone")
    assert f"{run} is no bundle: `python -m training export`" in str(outcome.exception)


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
    row = ROWS["em-mean-2"]
    assert f"  {row.name}, {row.title}, {row.images:,} images: seeds 1, 2\n" in output


def test_rows_of_other_recipes_and_code_are_listed_so(
    results: list[Result], tmp_path: Path
) -> None:
    """A stale seed is named, and so is code that is not today's."""
    own = [one for one in results if one.row == "em-mean-2"]
    changed = [replace(own[0], recipe="other", code="0123456789ab"), own[1]]
    write_results(changed, tmp_path / "results.json")
    output = call("list", runs=tmp_path / "none", docs=tmp_path).output
    assert "seeds 1, 2; stale: 1; by other code (0123456789ab)" in output


def test_the_page_is_written_from_results(results: list[Result], tmp_path: Path) -> None:
    """Trials on held-out images of rows of the test split are left out; it is repeatable."""
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    runs.mkdir()
    docs.mkdir()
    of_test = next(one for one in results if one.split == "test")
    for one in (*results, replace(of_test, split="validation"), replace(of_test, row="gone")):
        one.save(runs)
    assert 0 == call("write", runs=runs, docs=docs).exit_code
    page = (docs / "results.md").read_text()
    assert len(results) + 1 == len(read_results(docs / "results.json"))
    assert 0 == call("write", runs=tmp_path / "nothing new", docs=docs).exit_code
    assert page == (docs / "results.md").read_text()


def test_a_bundle_s_card_tells_the_mean_over_seeds(
    results: list[Result], bundle_path: Path, tmp_path: Path
) -> None:
    """Of as many images as it was trained with, its own seed among them; one alone is no mean."""
    bundle = say_training(bundle_path, tmp_path / "bundles" / "mnist")
    metrics = {
        "test_errors": 100,
        "test_images": 10_000,
        "interval_percent": [0.82, 1.21],
        "protocol": "test digits",
    }
    write_manifest(bundle.path, replace(bundle.manifest, metrics=metrics))
    name, images = bundle.manifest.name, RUN.images
    runs, docs, card = tmp_path / "runs", tmp_path / "docs", bundle.path / "CARD.md"
    runs.mkdir()
    docs.mkdir()
    first = replace(
        results[0],
        row=name,
        seed=RUN.seed,
        images=images,
        wrong={"plain": 100},
        tested={"plain": 10_000},
        which={"plain": list(range(100))},
    )
    first.save(runs)
    replace(first, images=images + 1, seed=RUN.seed + 2).save(runs)
    assert 0 == call("write", runs=runs, docs=docs).exit_code
    assert not card.exists() or "seeds" not in card.read_text()
    other = {"plain": list(range(120))}
    replace(first, seed=RUN.seed + 1, wrong={"plain": 120}, which=other).save(runs)
    assert 0 == call("write", runs=runs, docs=docs).exit_code
    told = "100 wrong); mean of 2 seeds 1.10 ± 0.14 % (95 % interval 0.90 to 1.30 %)"
    assert told in card.read_text()
    replace(first, wrong={"plain": 200}, which={"plain": list(range(200))}).save(runs)
    assert 0 == call("write", runs=runs, docs=docs).exit_code
    assert "seeds" not in card.read_text()  # the bundle is of another recipe


def test_own_bundles_are_in_the_tables_of_what_is_inside(tmp_path: Path) -> None:
    """A folder that `export` wrote is listed as the bundles that ship are."""
    shipped = Bundle.open(Path("model/bundles/mnist"))
    own = Path(shutil.copytree(shipped.path, tmp_path / "own"))
    health = shipped.manifest.health
    assert health
    done = CliRunner().invoke(app, ["inside", str(own), "--bundles", str(tmp_path / "none")])
    assert done.exit_code == 0, done.output
    assert f"| {health.effective_dims:g} of {health.class_dim} |" in done.output
