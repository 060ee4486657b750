"""docs/results.md, written from the results of rows and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, stdev

from training.table.charts import PICTURES
from training.table.results import Result
from training.table.rows import ROWS, SECTIONS, Row, Section

_HEAD = """# Results

Written by `python -m training table write` from `results.json`. Each row is a network trained with
a fixed number of images by a recipe that was fixed before; nothing was chosen by test errors. The
test split was read once for each row and seed, at the end. Errors are means over seeds, with the
sample's standard deviation where there are several.

Compact CapsNets have less than a tenth of the full ones' multiplications, compact baselines about
as many as they, and both a budget for a CPU. Their rows are to be compared with one another; the
paper's figures tell what more of both gives. What stands in the last column follows
`python -m training table run` and makes the row again.
"""


def write_page(results: Sequence[Result]) -> str:
    """The page's Markdown."""
    parts = [_HEAD, *(_write_section(section, results) for section in SECTIONS)]
    digests = {name: sha for one in results for name, sha in one.digests.items()}
    if digests:
        lines = [f"| {name} | `{sha}` |" for name, sha in digests.items()]
        parts.append(
            "SHA-256 of images, then labels, of the sets made of all test digits:\n\n"
            + "\n".join(["| set | SHA-256 |", "|---|---|", *lines, ""])
        )
    return "\n".join(parts)


def missing_rows(results: Iterable[Result]) -> list[Row]:
    """Compact rows without a result of their budget. Full-size rows alone may be left out."""
    done = {(one.row, one.images) for one in results}
    return [
        row for row in ROWS.values() if row.size == "compact" and (row.name, row.images) not in done
    ]


def summarise(values: Sequence[float]) -> str:
    """Mean, and deviation of several."""
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{spread}"


def _write_section(section: Section, results: Sequence[Result]) -> str:
    head = ["network", "size", "images seen", "paper", *section.columns.values(), "seeds", ""]
    lines = [f"## {section.title}\n\n{section.text}\n", _line(head), "|---" * len(head) + "|"]
    for stem in section.stems:
        for row in ROWS.values():
            if row.stem == stem:
                lines += _write_row(row, section, [one for one in results if one.row == row.name])
    if section.picture and PICTURES[section.picture](results).lines:
        lines.append(f"\n![{section.title}](pictures/{section.picture})")
    return "\n".join(lines) + "\n"


def _write_row(row: Row, section: Section, results: Sequence[Result]) -> Iterator[str]:
    """A line for each budget of a row."""
    figure = section.paper.get(row.stem, "")
    for images in sorted({one.images for one in results} or {row.images}):
        chosen = sorted((one for one in results if one.images == images), key=lambda one: one.seed)
        seeds = ",".join(str(one.seed) for one in chosen)
        errors = [
            summarise([one.errors[name] for one in chosen]) if chosen else "not run"
            for name in section.columns
        ]
        command = f"`--rows {row.name} --seeds {seeds or 1} --budget {images}`"
        yield _line([row.title, row.size, f"{images:,}", str(figure), *errors, seeds, command])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
