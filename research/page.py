"""Tables of rows in Markdown, from results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from research.compare import compare, is_stale, lines, of_row, score
from research.rows import Row, Table
from research.run import Result
from research.tables import ROWS

STALE = "stale: its recipe has changed since"
"""Follows the title of a row whose results are of another recipe than today's."""


def write_table(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """Write the errors of rows, the differences of those compared, and the rows that have not run.

    The first column has the name of the row, with which `python -m research run` trains it.
    """
    rows = []
    for row in table.rows:
        if own := of_row(row, results):
            seeds = ", ".join(str(one.seed) for one in own)
            title = f"{row.title} (**{STALE}**)" if _any_stale(row, own) else row.title
            rows.append((f"`{row.name}`", title, f"{row.images:,}", str(score(own)), seeds))
    if rows:
        yield lines(("row", "network", "images seen", "error, %", "seeds"), rows)
    if differences := list(_differences(table, results)):
        yield lines(("difference", "points"), differences)
    if missing := list(_missing(table, results)):
        yield f"Not run yet: {'; '.join(missing)}."


def _differences(table: Table, results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Those of the rows that are compared, unless a recipe has changed since."""
    known = {**ROWS, **{row.name: row for row in table.rows}}
    for names in table.compared:
        rows = [known[name] for name in names]
        own = [of_row(row, results) for row in rows]
        if any(map(_any_stale, rows, own)):
            continue
        counts = {row.training_images for row in rows}
        pair_seeds = len(counts) == 1 and None not in counts  # a seed chooses the same images
        if found := compare(*own, pair_seeds=pair_seeds):
            yield " less ".join(f"**{row.title}**" for row in rows), str(found)


def _any_stale(row: Row, own: Sequence[Result]) -> bool:
    return any(is_stale(row, one) for one in own)


def _missing(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """The rows of a table that have seeds without a result of today's recipe, by seeds."""
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        done = {one.seed for one in of_row(row, results) if not is_stale(row, one)}
        if seeds := ", ".join(str(seed) for seed in row.seeds if seed not in done):
            rows.setdefault(seeds, []).append(f"`{row.name}`")
    for seeds, names in rows.items():
        yield f"{', '.join(names)} ({'seeds' if ', ' in seeds else 'seed'} {seeds})"
