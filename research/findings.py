"""The findings of docs/results.md, which follow from rows by one rule.

Capsules, or their routing, make *more* or *fewer* errors than their control where the 95 % interval
of the difference lies above or below zero and both have several seeds. Elsewhere, nothing is
decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from research import routing
from research.compare import BOUND, Difference, compare, is_stale, lines, of_row, score
from research.rows import Table, share_images
from research.run import Result

HEADINGS = {
    "more": "More errors than the control",
    "one seed": "One seed: the interval does not cover other seeds",
    "one network": "One network, whose couplings are replaced after training",
    "undecided": "Undecided: the interval holds zero",
    "fewer": "Fewer errors than the control",
}
"""The verdicts in the order of the page; within each, evidence against capsules comes first."""

LARGEST = "largest allowed, points"
HEAD = ("network", "control", "errors, %", "difference, points", "seeds", LARGEST, "remark")
"""The columns of a table of findings."""


class Finding(NamedTuple):
    """A comparison of capsules, or of their routing, with a control."""

    network: str
    control: str
    percents: tuple[float, float]
    """The errors of both."""
    difference: Difference
    seeds: tuple[int, int] | None
    """How many; None where the networks themselves are compared, not their recipes."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """A key of HEADINGS."""
        if self.seeds is None:
            return "one network"
        if min(self.seeds) < 2:
            return "one seed"
        if self.difference.low > 0:
            return "more"
        return "fewer" if self.difference.high < 0 else "undecided"

    def cells(self, remarks: Sequence[str]) -> tuple[str, ...]:
        """The row of a table, below HEAD; `remarks` are numbered from one."""
        first, second = self.percents
        unnoticed = ""
        if self.verdict == "undecided" and second:
            reach = max(-self.difference.low, self.difference.high)
            unnoticed = f"{reach:.2f} ({100 * reach / second:.0f} %)"
        return (
            self.network,
            self.control,
            f"{first:.2f}, {second:.2f}",
            str(self.difference),
            f"{self.seeds[0]}, {self.seeds[1]}" if self.seeds else "",
            unnoticed,
            str(1 + remarks.index(self.note)) if self.note else "",
        )


def write_findings(
    tables: Mapping[str, Table], results: Sequence[Result], measured: Mapping[str, Any]
) -> str:
    """The findings as Markdown, by verdict."""
    found = [*_of_rows(tables, results), *_of_couplings(measured)]
    if not found:
        return "Nothing has been measured yet."
    remarks = list(dict.fromkeys(one.note for one in found if one.note))
    parts = [_rule(len(found), has_bounds=any(one.difference.is_bound for one in found))]
    for verdict, heading in HEADINGS.items():
        own = [one for one in found if one.verdict == verdict]
        rows = [one.cells(remarks) for one in sorted(own, key=lambda one: -one.difference.points)]
        parts += [f"### {heading}", lines(HEAD, rows) if rows else "None."]
    numbered = [
        f"{number}. {note[:1].upper()}{note[1:]}." for number, note in enumerate(remarks, 1)
    ]
    return "\n\n".join([*parts, *(["### Remarks", "\n".join(numbered)] if numbered else [])])


def _rule(count: int, *, has_bounds: bool) -> str:
    text = (
        "A finding compares capsules, or their routing, with a control. We report *more* errors if "
        "the whole 95 % interval of the difference is above zero, and *fewer* if it is below. Both "
        "networks need at least two seeds. We draw no conclusion from rows with one seed. Replaced "
        "couplings are tested on one trained network and say nothing about other seeds. For "
        "undecided rows, *largest allowed* is the end of the interval that is farther from zero, "
        f"also as a share of the control's errors. The {count} comparisons are not corrected for "
        "their number: where there is no true difference, one interval in twenty excludes zero. "
        "The differences most against capsules come first."
    )
    return f"{text} [{BOUND}](#how-rows-are-measured) marks older rows." if has_bounds else text


def _of_rows(tables: Mapping[str, Table], results: Sequence[Result]) -> Iterator[Finding]:
    rows = {row.name: row for table in tables.values() for row in table.rows}
    told = set[tuple[str, ...]]()
    for table in tables.values():
        for names in table.compared:
            both = [rows[name] for name in names[:2]]
            own = [of_row(row, results) for row in both]
            stale = any(
                is_stale(row, one) for row, few in zip(both, own, strict=True) for one in few
            )
            if not names.is_finding or stale or not all(own):
                continue
            for test, heading in table.columns.items():
                if (key := (*names[:2], test)) in told:
                    continue
                told.add(key)
                if difference := compare(own[0], own[1], test, pair_seeds=share_images(*both)):
                    of = "" if len(table.columns) == 1 else f", {heading.removesuffix(', %')}"
                    yield Finding(
                        f"{both[0].title}{of}",
                        both[1].title,
                        tuple(score(few, test).percent for few in own),  # type: ignore[arg-type]
                        difference,
                        (len(own[0]), len(own[1])),
                        names.note,
                    )


def _of_couplings(measured: Mapping[str, Any]) -> Iterator[Finding]:
    """The networks that ship, as routed and with uniform couplings, without new training."""
    for name, test, scores in routing.tests_of(measured):
        routed, uniform = (scores["couplings"][key] for key in ("routed", "uniform"))
        points, low, high = uniform["difference"]
        of = "" if test == routing.SPLIT else f", {test}"
        yield Finding(
            f"`{name}` as routed{of}",
            "with uniform couplings",
            tuple(100 * one["errors"] / scores["images"] for one in (routed, uniform)),
            Difference(-points, -high, -low),
            None,
            "",
        )
