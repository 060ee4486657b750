from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from training.__main__ import app
from training.data.datasets import Examples
from training.recipes import Recipe
from training.run.checkpoint import Checkpoint
from training.run.plan import Plan


def train_one_step(run_dir: Path, *options: str) -> int:
    arguments = ["train", "mnist-compact", "--run-dir", str(run_dir), "--device", "cpu"]
    return CliRunner().invoke(app, [*arguments, "--max-minutes", "0", *options]).exit_code


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
def test_what_restarts_by_itself_begins_and_then_goes_on(tmp_path: Path) -> None:
    """The same command starts a run and, after a kill, continues it."""
    for step in (1, 2):
        assert 0 == train_one_step(tmp_path, "--resume-or-begin")
        assert step == Checkpoint.load(tmp_path / "checkpoint.pt").step


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
@pytest.mark.parametrize("option", ["--weights", "--transfer"])
def test_what_restarts_by_itself_takes_other_weights_once(tmp_path: Path, option: str) -> None:
    """They are where the run began; what goes on has left them."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert 0 == train_one_step(first)
    for step in (1, 2):
        assert 0 == train_one_step(second, "--resume-or-begin", "--seed", "2", option, str(first))
        assert step == Checkpoint.load(second / "checkpoint.pt").step


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
def test_other_epochs_are_in_the_recipe(tmp_path: Path) -> None:
    """The recipe that is saved has them, so that going on without them is refused."""
    assert 0 == train_one_step(tmp_path, "--epochs", "0.5")
    assert 0.5 == Checkpoint.load(tmp_path / "checkpoint.pt").recipe.epochs
    assert 0 != train_one_step(tmp_path, "--resume")


def test_weights_are_stored_in_8_or_16_bits(tmp_path: Path) -> None:
    """Before anything is read, the command line says so."""
    result = CliRunner().invoke(app, ["export", str(tmp_path), "--bits", "4"])
    assert 2 == result.exit_code
    assert "8 or 16, not 4" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", "0"),
        ("--epochs", "inf"),
        ("--epochs", "nan"),
        ("--seed", "-1"),
        ("--threads", "-1"),
        ("--max-minutes", "-1"),
    ],
    ids=" ".join,
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, arguments: tuple[str, str]) -> None:
    """Before a folder is made for the run."""
    assert 2 == train_one_step(tmp_path / "run", *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.data
@pytest.mark.skipif("CAPSNET_DATA_DIR" not in os.environ, reason="needs the data sets")
def test_two_processes_do_not_share_a_folder(tmp_path: Path, bars: Examples, tiny: Recipe) -> None:
    """The second one is told so before it writes anything."""
    plan = Plan(tiny, 1, bars, None, tmp_path)
    with plan.locked():
        assert 1 == train_one_step(tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert 0 == train_one_step(tmp_path)
