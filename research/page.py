"""docs/results.md and tables of rows, from results.

The page's text is `research/results.md`. A placeholder there names rows of docs/results.json:

- `{error(row, test)}` is a row's error with its deviation over seeds and its interval.
- `{compare(first, second, test)}` is four cells: both errors, their difference and the seeds.
- `{compare_choices(first, second, test)}` is the same where a seed chooses the training images.

Without a test, `plain` is meant.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from research.compare import compare, describe, is_stale, lines, of_row, score
from research.rows import Row, Table, share_images
from research.run import Result
from research.tables import ROWS

NAME, SPEEDS = "results.md", "speeds.json"
TEXT = Path(__file__).with_name(NAME)
STALE = "stale: its recipe has changed since"
"""Follows the title of a row whose results are of another recipe than today's."""
_PLACEHOLDER = re.compile(r"\{(\w+)(?:\(([^)]*)\))?\}")


def write(results: Sequence[Result], docs_dir: Path, text: str | None = None) -> str:
    """The page's Markdown.

    Args:
        results: all of them.
        docs_dir: the folder of the record of speeds.
        text: the page with placeholders; by default `research/results.md`.

    Raises:
        KeyError: a placeholder names a row or a kind that does not exist.
    """
    tested = [one for one in results if one.split == "test"]
    kinds: dict[str, Callable[..., str]] = {
        "error": lambda row, test="plain": describe(_of_name(row, tested), test),
        "compare": lambda *names: _compare(*names, tested=tested),
        "compare_choices": lambda *names: _compare(*names, tested=tested, pair_seeds=True),
        "reads": lambda: _count_reads(tested),
        "speeds": lambda: _speeds(json.loads((docs_dir / SPEEDS).read_text())["networks"]),
    }

    def fill(placeholder: re.Match[str]) -> str:
        kind, names = placeholder.groups()
        return kinds[kind](*(name.strip() for name in names.split(",")) if names else ())

    return _PLACEHOLDER.sub(fill, TEXT.read_text() if text is None else text)


def write_table(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """Write the errors of rows, the differences of those compared, and the rows that have not run.

    The first column has the name of the row, with which `python -m research run` trains it.
    """
    rows = []
    for row in table.rows:
        if own := of_row(row, results):
            cells = [describe(own, test) for test in table.columns]
            seeds = ", ".join(str(one.seed) for one in own)
            rows.append((f"`{row.name}`", _title(row, own), _seen(own), *cells, seeds))
    if rows:
        yield lines(("row", "network", "images seen", *table.columns.values(), "seeds"), rows)
    if differences := list(_differences(table, results)):
        yield lines(("difference", "of", "points"), differences)
    if missing := list(_missing(table, results)):
        yield f"Not run yet: {'; '.join(missing)}."


def _of_name(name: str, results: Sequence[Result]) -> list[Result]:
    """Results of a row that need not be declared any more: of its largest budget, by seed."""
    named = [one for one in results if one.row == name]
    if not named:
        raise KeyError(f"{name} has no results")
    budget = max(one.images for one in named)
    return sorted((one for one in named if one.images == budget), key=lambda one: one.seed)


def _compare(
    first: str,
    second: str,
    test: str = "plain",
    *,
    tested: Sequence[Result],
    pair_seeds: bool = False,
) -> str:
    ones, others = _of_name(first, tested), _of_name(second, tested)
    difference = compare(ones, others, test, pair_seeds=pair_seeds)
    errors = " | ".join(f"{score(own, test).percent:.2f}" for own in (ones, others))
    return f"{errors} | {difference} | {len(ones)}, {len(others)}"


def _count_reads(tested: Sequence[Result]) -> str:
    """How often each test split was read."""
    reads = sorted(Counter(one.dataset for one in tested).items())
    *others, last = [f"`{name}` {count} times" for name, count in reads]
    return f"{', '.join(others)} and {last}" if others else last


def _speeds(networks: dict[str, dict[str, Any]]) -> str:
    """Sizes and medians of speeds, without the ratios in brackets."""
    head = list(dict.fromkeys(key for cells in networks.values() for key in cells))
    rows = []
    for name, cells in networks.items():
        values = (cells.get(key, "") for key in head)
        plain = (f"{one:,}" if isinstance(one, int) else one.partition(" ")[0] for one in values)
        rows.append((name, *plain))
    return lines(("network", *head), rows)


def _title(row: Row, own: Sequence[Result]) -> str:
    """A row's title; it says if its results are of another recipe."""
    return f"{row.title} (**{STALE}**)" if any(is_stale(row, one) for one in own) else row.title


def _seen(own: Sequence[Result]) -> str:
    """The images that training saw, from the least to the most where it was stopped at an error."""
    seen = sorted({one.trained_images or one.images for one in own})
    return " to ".join(f"{count:,}" for count in dict.fromkeys((seen[0], seen[-1])))


def _differences(table: Table, results: Sequence[Result]) -> Iterator[tuple[str, str, str]]:
    """Those of the rows that are compared, unless a recipe has changed since."""
    known = {**ROWS, **{row.name: row for row in table.rows}}
    for names in table.compared:
        rows = [known[name] for name in names]
        first, second = own = [of_row(row, results) for row in rows]
        if any(is_stale(row, one) for row, few in zip(rows, own, strict=True) for one in few):
            continue
        for test, heading in table.columns.items():
            if found := compare(first, second, test, pair_seeds=share_images(*rows)):
                titles = " less ".join(f"**{row.title}**" for row in rows)
                yield titles, heading, str(found)


def _missing(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """The rows of a table that have seeds without a result of today's recipe, by seeds."""
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        done = {one.seed for one in of_row(row, results) if not is_stale(row, one)}
        if seeds := ", ".join(str(seed) for seed in row.seeds if seed not in done):
            rows.setdefault(seeds, []).append(f"`{row.name}`")
    for seeds, names in rows.items():
        yield f"{', '.join(names)} ({'seeds' if ', ' in seeds else 'seed'} {seeds})"
