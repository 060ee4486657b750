"""docs/results.md, written from the results of rows and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean, stdev

from training.table.charts import PICTURES
from training.table.encoders import BATCHES, Encoder
from training.table.results import Result
from training.table.row import Row, Section
from training.table.rows import ROWS, SECTIONS

_HEAD = """# Results

Written by `python -m training table write` from `results.json` and `encoders.json`. Each row is a
network trained with a fixed number of images by a recipe that was fixed before; nothing was chosen
by test errors. The test split was read once for each row and seed, at the end, and never for the
last tables, which are there to choose by: their networks learn from all training images but the
last 5,000 and are tested on those. Errors are means over seeds, with the sample's standard
deviation where there are several.

Compact CapsNets have less than a tenth of the full ones' multiplications, compact baselines about
as many as they, and both a budget for a CPU. Their rows are to be compared with one another; the
paper's figures tell what more of both gives. What stands in the last column follows
`python -m training table run` and makes the row again.
"""

_ENCODER_COLUMNS = (
    "parameters",
    "MB",
    *(f"images/s at batch {batch} (ratio)" for batch in BATCHES),
)


def write_page(results: Sequence[Result], encoders: Mapping[str, Encoder]) -> str:
    """The page's Markdown."""
    parts = [_HEAD, *(_write_section(section, results, encoders) for section in SECTIONS)]
    digests = {name: sha for one in results for name, sha in one.digests.items()}
    if digests:
        lines = [f"| {name} | `{sha}` |" for name, sha in digests.items()]
        parts.append(
            "SHA-256 of images, then labels, of the sets made of all test digits:\n\n"
            + "\n".join(["| set | SHA-256 |", "|---|---|", *lines, ""])
        )
    return "\n".join(parts)


def missing_rows(results: Iterable[Result]) -> list[Row]:
    """Compact rows of the test split without a result of their budget: no others may be missing."""
    done = {(one.row, one.images) for one in results}
    wanted = [row for row in ROWS.values() if (row.size, row.split) == ("compact", "test")]
    return [row for row in wanted if (row.name, row.images) not in done]


def summarise(values: Sequence[float]) -> str:
    """Mean, and deviation of several."""
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{spread}"


def _write_section(
    section: Section, results: Sequence[Result], encoders: Mapping[str, Encoder]
) -> str:
    head = ["network", "size", "images seen"]
    if section.paper:
        head.append("paper")
    head += section.columns.values()
    if section.encoders:
        head += _ENCODER_COLUMNS
    head += ["seeds", ""]
    lines = [f"## {section.title}\n\n{section.text}\n", _line(head), "|---" * len(head) + "|"]
    for stem in section.stems:
        for row in ROWS.values():
            if row.stem == stem:
                of_row = [one for one in results if one.row == row.name]
                lines += _write_row(row, section, of_row, encoders.get(row.name))
    if section.picture and PICTURES[section.picture](results, encoders).lines:
        lines.append(f"\n![{section.title}](pictures/{section.picture})")
    return "\n".join(lines) + "\n"


def _write_row(
    row: Row, section: Section, results: Sequence[Result], encoder: Encoder | None
) -> Iterator[str]:
    """A line for each budget of a row."""
    for images in sorted({one.images for one in results} or {row.images}):
        chosen = sorted((one for one in results if one.images == images), key=lambda one: one.seed)
        seeds = ",".join(str(one.seed) for one in chosen)
        cells = [row.title, row.size, f"{images:,}"]
        if section.paper:
            cells.append(str(section.paper.get(row.stem, "")))
        cells += [
            summarise([one.errors[name] for one in chosen]) if chosen else "not run"
            for name in section.columns
        ]
        if section.encoders:
            cells += _describe(encoder)
        command = f"`--rows {row.name} --seeds {seeds or 1} --budget {images}`"
        yield _line([*cells, seeds, command])


def _describe(encoder: Encoder | None) -> list[str]:
    if encoder is None:
        return ["not measured"] * len(_ENCODER_COLUMNS)
    speeds = [
        f"{encoder.images_per_s[batch]:,.0f} ({encoder.ratios[batch]:.1f})" for batch in BATCHES
    ]
    return [f"{encoder.parameters:,}", f"{encoder.bytes / 1e6:.2f}", *speeds]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
