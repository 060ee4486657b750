"""Findings follow from rows by the rule that the page states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from research.compare import Difference
from research.findings import HEADINGS, Finding, write_findings
from research.routing import SPLIT
from research.rows import Compared, Row, Table
from research.run import Result
from research.tables import ROWS


@pytest.fixture
def table() -> dict[str, Table]:
    """Capsules and a control."""
    rows = [replace(ROWS["digits-r3-text"], name=name, title=name) for name in ("ours", "control")]
    return {"one": Table(tuple(rows), compared=(Compared("ours", "control", "it is small"),))}


def results(row: Row, *counts: int) -> list[Result]:
    """A result for each seed, the first images wrong."""
    return [
        Result(
            row=row.name,
            dataset="mnist",
            seed=seed,
            images=row.images,
            split="test",
            minutes=1.0,
            device="CPU",
            wrong={"plain": count},
            tested={"plain": 10_000},
            which={"plain": list(range(count))},
        )
        for seed, count in enumerate(counts)
    ]


def section(text: str, verdict: str) -> str:
    """The lines below a heading."""
    return text.partition(f"### {HEADINGS[verdict]}")[2].partition("###")[0]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((200, 201, 202), "more"),
        ((50, 51, 52), "fewer"),
        ((99, 100, 104), "undecided"),
        ((200,), "one seed"),
    ],
)
def test_a_finding_follows_from_its_rows(
    table: dict[str, Table], ours: tuple[int, ...], verdict: str
) -> None:
    """More or fewer where the interval excludes zero, with two seeds at least."""
    first, second = table["one"].rows
    text = write_findings(table, [*results(first, *ours), *results(second, 99, 100, 101)], {})
    assert "| ours | control | " in section(text, verdict)
    assert 1 == text.count("| ours |")
    assert "### Remarks\n\n1. It is small." in text


def test_evidence_against_capsules_comes_first() -> None:
    """In the order of the headings, and of the rows below each."""
    assert ["more", "one seed", "one network", "undecided", "fewer"] == list(HEADINGS)


def test_below_a_heading_the_worst_comes_first(table: dict[str, Table]) -> None:
    """The differences fall from line to line."""
    first, second = table["one"].rows
    other = replace(first, name="worse", title="worse")
    more = {"two": Table((other, second), compared=(Compared("worse", "control"),))}
    scores = [*results(first, 200, 201), *results(other, 300, 301), *results(second, 99, 100)]
    lines = section(write_findings(table | more, scores, {}), "more")
    assert lines.index("| worse |") < lines.index("| ours |")


def test_a_comparison_of_two_tables_is_one_finding(table: dict[str, Table]) -> None:
    """Tables may share rows and test sets."""
    first, second = table["one"].rows
    both = [*results(first, 200, 201), *results(second, 99, 100)]
    assert 1 == write_findings({**table, "two": table["one"]}, both, {}).count("| ours |")


def test_an_undecided_finding_says_what_it_may_have_missed() -> None:
    """In points and as a share of the control's errors."""
    found = Finding("a", "b", (1.0, 2.0), Difference(-0.1, -0.5, 0.3), (3, 3))
    assert "0.50 (25 %)" in found.cells([])


@pytest.mark.parametrize("points", [0.5, 0.1])
def test_networks_with_uniform_couplings_are_compared(points: float) -> None:
    """Each is one network, so that nothing is decided of its recipe; as routed less uniform."""

    def score(errors: int, change: float) -> dict[str, Any]:
        return {"errors": errors, "difference": [change, change - 0.2, change + 0.2]}

    couplings = {"routed": score(100, 0.0), "uniform": score(100 + round(100 * points), points)}
    measured = {"net": {"tests": {SPLIT: {"images": 10_000, "couplings": couplings}}}}
    text = write_findings({}, [], measured)
    difference = f"| {-points:+.2f} [{-points - 0.2:+.2f}, {0.2 - points:+.2f}] |"
    assert difference in section(text, "one network")


def test_stale_rows_give_no_finding(table: dict[str, Table]) -> None:
    """A recipe that was edited has nothing to say yet."""
    first, second = table["one"].rows
    stale = [replace(one, recipe="old") for one in results(first, 200, 201)]
    text = write_findings(table, [*stale, *results(second, 99, 100)], {})
    assert "Nothing has been measured yet." == text


def test_comparisons_of_options_are_no_findings(table: dict[str, Table]) -> None:
    """They speak neither for nor against capsules."""
    one = table["one"]
    options = one._replace(compared=(Compared("ours", "control", is_finding=False),))
    both = [*results(one.rows[0], 9, 9), *results(one.rows[1], 99, 99)]
    assert "Nothing has been measured yet." == write_findings({"one": options}, both, {})
