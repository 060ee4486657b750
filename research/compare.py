"""What results say of a row, and how far two rows differ on the same images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from research.rows import Row, Table
from research.run import Result, recipe_digest
from research.tables import ROWS
from training.statistics import interval, mean_interval


class Score(NamedTuple):
    """An error in percent: mean over seeds, its 95 % interval over images, deviation over seeds."""

    percent: float
    low: float
    high: float
    deviation: float | None

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.percent:.2f}{spread} [{self.low:.2f}, {self.high:.2f}]"


class Difference(NamedTuple):
    """The error of one network less that of another, in percentage points; 95 % interval."""

    points: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.points:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def of_row(row: Row, results: Sequence[Result]) -> list[Result]:
    """Its results at its own budget and of today's recipe, by seed."""
    own = [one for one in results if (one.row, one.images) == (row.name, row.images)]
    return sorted((one for one in own if not is_stale(row, one)), key=lambda one: one.seed)


def is_stale(row: Row, result: Result) -> bool:
    """Whether a result is of another recipe; False where it is not known."""
    return bool(result.recipe) and result.recipe != recipe_digest(row)


def score(results: Sequence[Result]) -> Score:
    """What networks that differ in their seed make of the same images.

    The interval of their mean is that of the mean over seeds of each image: 1.96 std / sqrt(N). Of
    one network it is Wilson's.
    """
    percents = [one.percent for one in results]
    if len(results) == 1:
        low, high = interval(len(results[0].which), results[0].tested)
        return Score(percents[0], low, high, None)
    low, high = mean_interval(_wrong(results).mean(axis=0))
    return Score(mean(percents), low, high, stdev(percents))


def compare(
    first: Sequence[Result], second: Sequence[Result], *, pair_seeds: bool = False
) -> Difference | None:
    """The difference of two networks' errors over the seeds of each.

    Images and seeds are random effects. The variance is that of the paired differences over images
    plus that of each network's error over its seeds; the interval is Student's t with the
    Welch-Satterthwaite degrees of freedom. With one seed each it is that of images alone.

    Args:
        pair_seeds: a seed means the same in both, such as a choice of training images. The
            differences are then taken seed by seed, over the seeds that both have.

    Returns:
        None where a network has no results.
    """
    if pair_seeds:
        common = {one.seed for one in first} & {one.seed for one in second}
        first, second = (
            sorted((one for one in own if one.seed in common), key=lambda one: one.seed)
            for own in (first, second)
        )
    if not first or not second:
        return None
    less = _wrong(first).mean(axis=0) - _wrong(second).mean(axis=0)  # (images,)
    variances, freedoms = [less.var(ddof=1) / len(less)], [len(less) - 1]
    errors = [np.array([one.percent / 100 for one in own]) for own in (first, second)]
    for over_seeds in [errors[0] - errors[1]] if pair_seeds else errors:
        if len(over_seeds) > 1:
            variances.append(over_seeds.var(ddof=1) / len(over_seeds))
            freedoms.append(len(over_seeds) - 1)
    total = sum(variances)
    parts = sum(part**2 / free for part, free in zip(variances, freedoms, strict=True))
    reach = scipy.stats.t.ppf(0.975, total**2 / parts) * total**0.5 if total else 0.0
    middle = errors[0].mean() - errors[1].mean()
    return Difference(*(float(100 * end) for end in (middle, middle - reach, middle + reach)))


def lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join((first, "|---" * (first.count(" | ") + 1) + "|", *rest))


def _wrong(results: Sequence[Result]) -> NDArray[np.float64]:
    """1 where a seed (row) answered an image (column) wrongly."""
    wrong = np.zeros((len(results), results[0].tested))
    for row, one in zip(wrong, results, strict=True):
        row[[*one.which]] = 1
    return wrong


def write_table(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """Write the errors of rows, the differences of those compared, and the rows that have not run.

    The first column has the name of the row, with which `python -m research run` trains it.
    """
    rows = []
    for row in table.rows:
        if own := of_row(row, results):
            seeds = ", ".join(str(one.seed) for one in own)
            rows.append((f"`{row.name}`", row.title, f"{row.images:,}", str(score(own)), seeds))
    if rows:
        yield lines(("row", "network", "images seen", "error, %", "seeds"), rows)
    if differences := list(_differences(table, results)):
        yield lines(("difference", "points"), differences)
    if missing := list(_missing(table, results)):
        yield f"Not run yet: {'; '.join(missing)}."


def _differences(table: Table, results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Those of the rows that are compared."""
    known = {**ROWS, **{row.name: row for row in table.rows}}
    for names in table.compared:
        rows = [known[name] for name in names]
        counts = {row.training_images for row in rows}
        pair_seeds = len(counts) == 1 and None not in counts  # a seed chooses the same images
        if found := compare(*(of_row(row, results) for row in rows), pair_seeds=pair_seeds):
            yield " less ".join(f"**{row.title}**" for row in rows), str(found)


def _missing(table: Table, results: Sequence[Result]) -> Iterator[str]:
    """The rows of a table that have seeds without a result of today's recipe, by seeds."""
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        done = {one.seed for one in of_row(row, results)}
        if seeds := ", ".join(str(seed) for seed in row.seeds if seed not in done):
            rows.setdefault(seeds, []).append(f"`{row.name}`")
    for seeds, names in rows.items():
        yield f"{', '.join(names)} ({'seeds' if ', ' in seeds else 'seed'} {seeds})"
