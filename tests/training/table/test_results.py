from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from training.run.plan import TrainingError
from training.table.results import Result, read_results, write_results


def test_results_survive_being_written_one_by_one(results: list[Result], tmp_path: Path) -> None:
    """Each has a file of its own."""
    for one in results:
        one.save(tmp_path)
    assert sorted(results, key=lambda one: one.key) == read_results(tmp_path)


def test_results_survive_being_written_together(results: list[Result], tmp_path: Path) -> None:
    """In their order."""
    write_results(results, tmp_path / "all.json")
    assert results == read_results(tmp_path / "all.json")


def test_where_nothing_is_there_are_no_results(tmp_path: Path) -> None:
    """Neither in a folder that is not there nor in an empty one."""
    assert [] == read_results(tmp_path) == read_results(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["{", '{"row": "mnist"}'])
def test_a_file_of_something_else_is_told(content: str, tmp_path: Path) -> None:
    """Half a file, or one with other keys, is an error that names it."""
    (tmp_path / "one.json").write_text(content)
    with pytest.raises(TrainingError, match="does not hold results"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "change", [{"row": "other"}, {"seed": 3}, {"images": 7}, {"split": "validation"}], ids=str
)
def test_results_that_differ_are_kept_apart(results: list[Result], change: dict[str, str]) -> None:
    """By row, seed, budget and split."""
    assert results[0].key != replace(results[0], **change).key  # type: ignore[arg-type]
