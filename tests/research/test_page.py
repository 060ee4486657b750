"""docs/results.md is what its records give, and so are figures in prose elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from model import SHIPPED
from model.bundle import MANIFEST, Bundle
from research import page
from research.run import Result, read_results

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROSE = (
    *(DOCS / "explanation" / f"{name}.md" for name in ("capsules", "families", "views")),
    ROOT / "README.md",
)
ONE = Result("first", "mnist", 1, 9, "test", 1.0, "CPU", {"plain": 100}, {"plain": 10_000})
OTHER = replace(ONE, row="second", wrong={"plain": 200})


def test_the_page_in_the_docs_is_what_its_results_give() -> None:
    """Nobody has edited it by hand."""
    expected = page.write(read_results(DOCS / "results.json"), DOCS)
    assert expected == (DOCS / page.NAME).read_text()


def test_errors_and_differences_are_filled_in() -> None:
    """With intervals; results that did not keep which images were wrong are marked."""
    text = "{error(first)}; {compare(first, second)} |"
    found = page.write([ONE, OTHER], DOCS, text)
    assert found.startswith("1.00 [0.82, 1.21]; 1.00 | 2.00 | -1.00 [-1.34, -0.66]† | 1, 1 |")


def test_rows_of_the_largest_budget_count() -> None:
    """A trial with fewer images is another result."""
    trial = replace(ONE, images=3, wrong={"plain": 5000})
    assert "1.00 [" in page.write([ONE, trial], DOCS, "{error(first)}")


def test_reads_of_test_splits_are_counted() -> None:
    """By data set; held-out images do not count."""
    read = [ONE, OTHER, replace(ONE, dataset="cifar-10"), replace(ONE, split="validation")]
    assert "`cifar-10` 1 times and `mnist` 2 times" == page.write(read, DOCS, "{reads}")


@pytest.mark.parametrize("text", ["{error(gone)}", "{guess(first)}"])
def test_a_placeholder_without_a_record_fails(text: str) -> None:
    """The page has no empty cells."""
    with pytest.raises(KeyError):
        page.write([ONE], DOCS, text)


@pytest.mark.parametrize("prose", PROSE, ids=lambda path: path.name)
def test_percentages_in_prose_are_on_record(prose: Path) -> None:
    """They are errors of the bundles, or stand on the page of results."""
    known = set(re.findall(r"\d+\.\d+", (DOCS / page.NAME).read_text()))
    for path in SHIPPED.glob(f"*/{MANIFEST}"):
        percent = Bundle.open(path.parent).manifest.metrics["test_error_percent"]
        known |= {f"{percent:.1f}", f"{percent:.2f}"}
    found = re.findall(r"(\d+\.\d+) (?:%|points)", prose.read_text())
    papers = {"5.2": "Sabour 2017, pairs of digits"}
    assert [] == [figure for figure in found if figure not in known | papers.keys()]
