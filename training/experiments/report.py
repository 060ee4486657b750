"""docs/results.md and its pictures, written from results of rows and nothing else."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from PIL import Image

from model.capsnet import Network, build, family_of
from training.answers import interval
from training.checkpoint import CHECKPOINT, Checkpoint
from training.data.datasets import DATASETS, hold_out, load
from training.experiments.declare import Column, Experiment, Row
from training.experiments.run import Result
from training.experiments.seeds import draw_pairs, draw_sweeps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = 64
"""Of a picture, which keeps its file small."""
_HEAD = """# Results

Written by `python -m training experiment write` from `results.json`. A row is a network
trained with a fixed number of images by a recipe that was fixed before; choices were made
on the last 5,000 training images, and tables that say "held-out" show errors on those. A test split
was read once for each row and seed, at the end: {reads}.

Errors are means over seeds, ± the sample's standard deviation where there are several. In brackets
is the 95 % interval (Wilson) of all seeds' answers together: two rows whose intervals overlap may
differ by chance. It knows nothing of how much another seed would differ.
"""


def write_page(
    experiments: Sequence[Experiment],
    results: Sequence[Result],
) -> str:
    """The page's Markdown: a section for each experiment with results, then what has none."""
    reads = Counter(one.dataset for one in results if one.split == "test")
    counts = " and ".join(f"`{name}` {count} times" for name, count in sorted(reads.items()))
    parts = [_HEAD.format(reads=counts or "never yet")]
    parts += [_section(one, results) for one in experiments if _of(one.rows, results)]
    digests = {name: sha for one in results for name, sha in one.digests.items()}
    if digests:
        lines = [_line(("set", "SHA-256")), "|---|---|"]
        lines += [_line((name, f"`{sha}`")) for name, sha in digests.items()]
        parts.append("\n".join(("## Sets made of test digits\n", *lines, "")))
    if missing := [line for one in experiments if (line := _missing(one, results))]:
        parts.append("\n".join(("## Not run yet\n", *missing, "")))
    return "\n".join(parts)


def describe(column: Column, results: Sequence[Result]) -> str:
    """A cell: mean, deviation and the interval of the pooled answers."""
    count = sum(one.tested[column.test] for one in results)
    wrong = sum(one.wrong[column.test] for one in results)
    values = [one.percent(column.test) for one in results]
    if column.right:
        values, wrong = [100 - value for value in values], count - wrong
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    low, high = interval(wrong, count)
    return f"{mean(values):.2f}{spread} [{low:.2f}, {high:.2f}]"


def _section(one: Experiment, results: Sequence[Result]) -> str:
    reported = any(row.name in one.paper for row in one.rows)
    head = ["network", "images seen", *(["paper"] if reported else [])]
    head += [column.heading for column in one.columns]
    head.append("seeds")
    lines = [f"## {one.title}\n\n{one.text}\n", _line(head), "|---" * len(head) + "|"]
    for row in one.rows:
        of_row = _of([row], results)
        for images in sorted({result.images for result in of_row}):
            same = [result for result in of_row if result.images == images]
            cells = [row.title, f"{images:,}"]
            cells += [str(one.paper.get(row.name, ""))] if reported else []
            cells += [describe(column, same) for column in one.columns]
            lines.append(_line([*cells, ", ".join(str(result.seed) for result in same)]))
    if one.name in PICTURES and _complete(one, results):
        lines.append(f"\n![{one.title}](pictures/{one.name}.png)")
    return "\n".join((*lines, f"\n`python -m training experiment run {one.name}`\n"))


def _missing(one: Experiment, results: Sequence[Result]) -> str:
    """An experiment's line among those that were not run, or nothing."""
    rows = [row for row in one.rows if not _of([row], results)]
    if not rows:
        return ""
    names = one.name if len(rows) == len(one.rows) else " ".join(row.name for row in rows)
    return f"- {one.title}: `python -m training experiment run {names}`"


def _of(rows: Sequence[Row], results: Sequence[Result]) -> list[Result]:
    names = {row.name for row in rows}
    return sorted((one for one in results if one.row in names), key=lambda one: one.seed)


def _at_budget(row: Row, results: Sequence[Result]) -> list[Result]:
    return [one for one in _of([row], results) if one.images == row.images]


def _complete(one: Experiment, results: Sequence[Result]) -> bool:
    return all(_at_budget(row, results) for row in one.rows)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw_pictures(
    experiments: Sequence[Experiment],
    results: Sequence[Result],
    directory: Path,
    *,
    runs: Path,
    data_dir: Path,
) -> None:
    """Draw those pictures for which all rows have results.

    Args:
        runs: of the rows; a picture of what networks draw or say stays as it is where their weights
            are not there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for one in experiments:
        kind = PICTURES.get(one.name)
        if kind is None or not _complete(one, results):
            continue
        figure: Figure | None
        if kind in ("sweeps", "pairs"):
            figure = _draw_answers(kind, one, results, runs=runs, data_dir=data_dir)
        else:
            figure = _draw_errors(kind, one, results)
        if figure is not None:
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png")
            with Image.open(drawn) as picture:
                small = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
            small.save(directory / f"{one.name}.png", optimize=True)


PICTURES = {
    "frozen": "sweeps",
    "side-by-side": "pairs",
    "em-iterations": "curves",
    "dynamic-iterations": "curves",
    "fewer-images": "fewer",
    "transformed-digits": "transformed",
}
"""What is drawn of an experiment."""


def _draw_answers(
    kind: str, one: Experiment, results: Sequence[Result], *, runs: Path, data_dir: Path
) -> Figure | None:
    """What the first seed's networks make of held-out training images."""
    networks: dict[str, Network] = {}
    for row in one.rows:
        path = runs / _at_budget(row, results)[0].key / CHECKPOINT
        if not path.exists():
            return None
        networks[row.title] = build(row.recipe.network)
        networks[row.title].load_state_dict(Checkpoint.load(path).network)
    dataset = DATASETS[one.rows[0].recipe.dataset]
    held_out = hold_out(load(dataset, "train", data_dir), dataset.held_out)[1]
    return (draw_sweeps if kind == "sweeps" else draw_pairs)(networks, held_out)


def _draw_errors(kind: str, one: Experiment, results: Sequence[Result]) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415  training can do without

    figure = Figure((7, 3.6), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    if kind == "curves":
        for row in one.rows:
            curves = [dict(result.curve) for result in _at_budget(row, results)]
            x = sorted(set(curves[0]).intersection(*curves))
            axes.plot(x, [mean(curve[seen] for curve in curves) for seen in x], label=row.title)
        axes.set(xlabel="training images seen", ylabel="error on held-out images, %", yscale="log")
    elif kind == "fewer":
        for title, rows in _by_family(one.rows):
            counts = [(row.training_images or 60_000, "plain", row) for row in rows]
            _plot_errors(axes, title, counts, results)
        axes.set(xlabel="training images", ylabel="test error, %", xscale="log", ylim=(0, None))
    else:
        for row in one.rows:
            shares = [(int(test.split()[1]), test, row) for test in row.tests if "affine" in test]
            _plot_errors(axes, row.title, shares, results)
        axes.set(xlabel="share of affNIST's ranges, %", ylabel="test error, %", ylim=(0, None))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    return figure


def _plot_errors(
    axes: Axes, title: str, points: Sequence[tuple[float, str, Row]], results: Sequence[Result]
) -> None:
    """Errors of test sets of rows at abscissas, with their intervals."""
    errors, below, above = [], [], []
    for _, test, row in points:
        pooled = _at_budget(row, results)
        counts = [sum(getattr(one, name)[test] for one in pooled) for name in ("wrong", "tested")]
        low, high = interval(*counts)
        errors.append(100 * counts[0] / counts[1])
        below.append(errors[-1] - low)
        above.append(high - errors[-1])
    x = [point[0] for point in points]
    axes.errorbar(x, errors, (below, above), label=title, marker="o", markersize=4, capsize=3)


def _by_family(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each family, called like that which learns from all images."""
    for family in dict.fromkeys(family_of(row.recipe.network).name for row in rows):
        own = [row for row in rows if family_of(row.recipe.network).name == family]
        yield own[-1].title, own
