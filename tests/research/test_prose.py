"""Percentages in prose are those of records, or figures of papers that are listed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model import SHIPPED
from model.bundle import MANIFEST, Bundle
from research import routing
from research.compare import of_row, score
from research.controls import register
from research.findings import write_findings
from research.run import read_results
from research.tables import ROWS, TABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *(DOCS / "explanation" / f"{name}.md" for name in ("capsules", "families", "views")),
    ROOT / "README.md",
    ROOT / "research" / "results.md",
)
PAPERS = {
    "0.25": "Sabour 2017, MNIST",
    "5.2": "Sabour 2017, pairs of digits",
    "7.26": "DeepCaps, CIFAR-10, seven networks",
    "5.27": "DeepCaps, Fashion-MNIST, seven networks",
    "5.54": "DeepCaps, Fashion-MNIST, one network",
}


def rounded(percent: float) -> set[str]:
    """A figure as prose may write it."""
    return {f"{percent:.1f}", f"{percent:.2f}"}


@pytest.fixture
def known() -> set[str]:
    """All errors on record, and figures of papers."""
    register()
    figures = set(PAPERS)
    results = read_results(DOCS / "results.json")
    for row in ROWS.values():
        if own := of_row(row, results):
            figures |= {part for test in own[0].wrong for part in rounded(score(own, test).percent)}
    for _, _, scores in routing.tests_of(routing.read(DOCS)):
        for one in scores["couplings"].values():
            figures |= rounded(100 * one["errors"] / scores["images"])
    for path in SHIPPED.glob(f"*/{MANIFEST}"):
        metrics = Bundle.open(path.parent).manifest.metrics
        figures |= rounded(metrics["test_error_percent"])
        if "seeds" in metrics:
            figures |= rounded(metrics["seeds"]["mean_percent"])
    return figures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_percentages_in_prose_are_on_record(page: Path, known: set[str]) -> None:
    """A network that is trained anew leaves no stale figure behind."""
    found = re.findall(r"(\d+\.\d+) %", page.read_text())
    assert [] == [figure for figure in found if figure not in known]


def test_the_page_s_findings_are_those_of_its_results() -> None:
    """They are computed, and nobody edits them."""
    register()
    page = (DOCS / "results.md").read_text()
    measured, results = routing.read(DOCS), read_results(DOCS / "results.json")
    assert write_findings(TABLES, results, measured) in page
