"""What results say of a row, and how far two rows differ on the same images."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from research.protocols import objects_of
from research.records import recipe_digest
from research.rows import Row
from research.run import Result
from training.statistics import freedom, interval, quantile, standard_error

BOUND = "†"
"""Marks an interval of results that did not keep which images were wrong."""


class Score(NamedTuple):
    """An error in percent: mean over seeds, its 95 % interval over images, deviation over seeds."""

    percent: float
    low: float
    high: float
    deviation: float | None
    is_bound: bool
    """Whether this is Wilson's interval of a single network, an upper bound for the mean over
    seeds: the results did not keep which images were wrong."""


class Difference(NamedTuple):
    """The error of one network less that of another, in percentage points; 95 % interval."""

    points: float
    low: float
    high: float
    is_bound: bool = False
    """Whether images could not be paired: the interval is then wider than it need be."""

    def __str__(self) -> str:
        mark = BOUND * self.is_bound
        return f"{self.points:+.2f} [{self.low:+.2f}, {self.high:+.2f}]{mark}"


def of_row(row: Row, results: Sequence[Result]) -> list[Result]:
    """Its results at its own budget, by seed; those of today's recipe where there are any."""
    own = [one for one in results if (one.row, one.images) == (row.name, row.images)]
    current = [one for one in own if not is_stale(row, one)]
    return sorted(current or own, key=lambda one: one.seed)


def is_stale(row: Row, result: Result) -> bool:
    """Whether a result is of another recipe; False where it is not known."""
    return bool(result.recipe) and result.recipe != recipe_digest(row)


def score(results: Sequence[Result], test: str) -> Score:
    """What networks that differ in their seed make of a test set.

    They answer the same images, so the interval of their mean is that of the mean over seeds of
    each image: 1.96 std / sqrt(N). Pairs that share digits, and images of the same objects, widen
    it (`training.statistics.standard_error`).
    """
    percents = [one.percent(test) for one in results]
    middle, count = mean(percents), results[0].tested[test]
    deviation = stdev(percents) if len(percents) > 1 else None
    known = all(test in one.which for one in results)
    objects, design = objects_of(test, count), _design(results, test)
    if known and (len(results) > 1 or design != 1 or objects is not None):
        over_seeds = _wrong(results, test).mean(axis=0)
        error = standard_error(over_seeds, objects) * design**0.5
        reach = 100 * quantile(over_seeds, objects) * error
        return Score(middle, middle - reach, middle + reach, deviation, is_bound=False)
    low, high = interval(round(mean(one.wrong[test] for one in results)), count)
    return Score(middle, low, high, deviation, is_bound=len(results) > 1)


def describe(results: Sequence[Result], test: str) -> str:
    """A cell: mean ± deviation [interval]."""
    found = score(results, test)
    spread = "" if found.deviation is None else f" ± {found.deviation:.2f}"
    return (
        f"{found.percent:.2f}{spread} [{found.low:.2f}, {found.high:.2f}]{BOUND * found.is_bound}"
    )


def compare(
    first: Sequence[Result], second: Sequence[Result], test: str, *, pair_seeds: bool = False
) -> Difference | None:
    """The difference of two networks' errors over the seeds of each.

    Images and seeds are random effects. The variance is that of the paired differences over images,
    or over the objects that they show, plus that of each network's error over its seeds; the
    interval is Student's t with the Welch-Satterthwaite degrees of freedom. The mean design effect
    of shared digits widens that of pairs. With one seed each it is that of images alone. Where
    older results did not keep which images were wrong, each network counts as if it had answered
    images of its own, which widens the interval.

    Args:
        pair_seeds: a seed means the same in both, such as a choice of training images. The
            differences are then taken seed by seed, over the seeds that both have.

    Returns:
        None where a network has no results, or none of the test set.
    """
    if not first or not second or any(test not in one.wrong for one in (*first, *second)):
        return None
    if pair_seeds:
        common = {one.seed for one in first} & {one.seed for one in second}
        if not common:
            return None
        first, second = (_of_seeds(own, common) for own in (first, second))
    both, count = (first, second), first[0].tested[test]
    errors = [np.array([one.percent(test) / 100 for one in own]) for own in both]
    middle = errors[0].mean() - errors[1].mean()
    is_bound = any(test not in one.which for one in (*first, *second))
    if is_bound:
        variances, free = [sum(rate.mean() * (1 - rate.mean()) for rate in errors) / count], [count]
    else:
        rates = [_wrong(own, test).mean(axis=0) for own in both]  # (images,) each
        objects, less = objects_of(test, count), rates[0] - rates[1]
        variance = less.var(ddof=1) / count
        if objects is not None:
            variance = standard_error(less, objects) ** 2
        variances, free = [variance], [freedom(less, objects)]
    variances[0] *= _design((*first, *second), test)
    for error in [errors[0] - errors[1]] if pair_seeds else errors:
        if len(error) > 1:
            variances.append(error.var(ddof=1) / len(error))
            free.append(len(error) - 1)
    total = sum(variances)
    parts = sum(part**2 / degrees for part, degrees in zip(variances, free, strict=True))
    reach = stats.t.ppf(0.975, total**2 / parts) * total**0.5 if total else 0.0
    points, low, high = (float(100 * end) for end in (middle, middle - reach, middle + reach))
    return Difference(points, low, high, is_bound)


def _design(results: Sequence[Result], test: str) -> float:
    """The mean design effect of digits that pairs share; 1 of other images."""
    return mean(one.design.get(test, 1.0) for one in results)


def _of_seeds(results: Sequence[Result], seeds: Collection[int]) -> list[Result]:
    """The results of these seeds, in their order."""
    return sorted((one for one in results if one.seed in seeds), key=lambda one: one.seed)


def lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join((first, "|---" * (first.count(" | ") + 1) + "|", *rest))


def _wrong(results: Sequence[Result], test: str) -> NDArray[np.float64]:
    """1 where a seed (row) answered an image (column) wrongly."""
    wrong = np.zeros((len(results), results[0].tested[test]))
    for row, one in zip(wrong, results, strict=True):
        row[one.which[test]] = 1
    return wrong
