from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from training.table.encoders import Encoder, read_encoders
from training.table.page import missing_rows, summarise, write_page
from training.table.results import Result, read_results
from training.table.rows import ROWS

DOCS = Path(__file__).parents[3] / "docs"


def line_of(page: str, *parts: str) -> str:
    (line,) = {line for line in page.splitlines() if all(part in line for part in parts)}
    return line


@pytest.mark.parametrize(
    ("values", "expected"), [([1.234], "1.23"), ([1.0, 2.0, 3.0], "2.00 ± 1.00")]
)
def test_errors_are_means_with_the_samples_deviation(values: list[float], expected: str) -> None:
    """One value has none."""
    assert expected == summarise(values)


def test_a_line_tells_all_of_a_row(results: list[Result]) -> None:
    """Budget, the paper's figure, both seeds' errors, and the command that makes it again."""
    line = line_of(write_page(results, {}), "--rows multimnist-r3-paper-compact ")
    expected = (
        "| CapsNet, 3 iterations, reconstruction | compact | 50,000 | 5.2 | 1.50 ± 0.71 "
        "| 11.50 ± 0.71 | 1,2 | `--rows multimnist-r3-paper-compact --seeds 1,2 --budget 50000` |"
    )
    assert expected == line


def test_full_size_rows_may_not_have_been_run(results: list[Result]) -> None:
    """They say so, and how to."""
    line = line_of(write_page(results, {}), "--rows multimnist-baseline ")
    assert "| 8.1 | not run | not run |  | `--rows multimnist-baseline --seeds 1 " in line


def test_budgets_are_kept_apart(results: list[Result]) -> None:
    """A row of another budget has a line of its own."""
    (first, _) = [one for one in results if one.row == "mnist-r1-none-compact"]
    page = write_page([*results, replace(first, images=999_999, errors={"plain": 0.5})], {})
    assert "| 999,999 | 0.34 ± 0.032 | 0.50 | 1 |" in line_of(page, "mnist-r1-none-c", "999999")
    assert "| 60,000 | 0.34 ± 0.032 | 1.50 ± 0.71 | 1,2 |" in line_of(
        page, "mnist-r1-none-c", "60000"
    )


def test_encoders_stand_beside_errors(results: list[Result], encoders: dict[str, Encoder]) -> None:
    """Parameters, megabytes, images per second and their ratios, where they were measured."""
    page = write_page(results, encoders)
    expected = "| 1.50 ± 0.71 | 1,234,567 | 1.23 | 2,000 (10.0) | 2,000 (10.0) | 1,2 |"
    assert expected in line_of(page, "--rows held-out-mnist-32x4-compact ")
    missing = "| 1.50 ± 0.71 | not measured | not measured | not measured | not measured | 1,2 |"
    assert missing in line_of(page, "--rows held-out-mnist-32x8-compact ")


def test_tables_without_the_papers_figures_have_no_column_for_them(results: list[Result]) -> None:
    """Those of choices of ours."""
    line = line_of(write_page(results, {}), "--rows held-out-fashion-mnist-no-flip-compact ")
    assert line.startswith("| not mirrored | compact | 60,000 | 1.50 ± 0.71 | 1,2 |")


def test_the_page_gives_digests_and_pictures(
    results: list[Result], encoders: dict[str, Encoder]
) -> None:
    """Of the transformed test digits; pictures only where there are results for them."""
    page, empty = write_page(results, encoders), write_page([], encoders)
    assert "| turned | `turned digest` |" in page
    for picture in ("fewer-images.png", "transformed-digits.png", "sizes.png"):
        assert f"](pictures/{picture})" in page
        assert picture not in empty


def test_missing_rows_are_the_compact_ones(results: list[Result]) -> None:
    """Another budget does not count as the row's own; rows to choose by may be missing."""
    assert [] == missing_rows([one for one in results if one.split == "test"])
    short = [replace(one, images=64) if one.row == results[0].row else one for one in results]
    assert [ROWS[results[0].row]] == missing_rows(short)


def test_the_page_in_the_docs_is_what_its_results_give() -> None:
    """Nobody has edited it by hand, and no compact row is missing."""
    if not (DOCS / "results.md").exists():
        pytest.skip("no row has been recorded yet")
    results = read_results(DOCS / "results.json")
    assert [] == missing_rows(results)
    encoders = read_encoders(DOCS / "encoders.json")
    assert encoders.keys() <= ROWS.keys()
    assert write_page(results, encoders) == (DOCS / "results.md").read_text()
