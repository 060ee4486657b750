"""Pictures of tables, for docs/results.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from research import routing
from research.compare import of_row, score
from research.run import Result
from research.tables import TABLES, Row, Table
from training.figures import save, scale_by_logarithm

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_all(results: Sequence[Result], docs_dir: Path) -> None:
    """Draw what has results, in docs/pictures."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    (docs_dir / "pictures").mkdir(exist_ok=True)
    for table in TABLES:
        draw = DRAWN.get(table.name)
        if draw and any(of_row(row, results) for row in table.rows):
            figure = Figure((7, 3.6), dpi=100, layout="constrained")
            axes = figure.subplots()
            axes.spines[["top", "right"]].set_visible(False)
            draw(axes, table, results)
            axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
            save(figure, docs_dir / "pictures" / f"{table.name}.png", 256)
    routing.draw(routing.read(docs_dir), docs_dir / "pictures" / "routing-off.png")


def _draw_curves(axes: Axes, table: Table, results: Sequence[Result]) -> None:
    for row in table.rows:
        if curves := [dict(one.curve) for one in of_row(row, results)]:
            x = sorted(set(curves[0]).intersection(*curves))
            axes.plot(x, [mean(curve[seen] for curve in curves) for seen in x], label=row.title)
    axes.set(xlabel="training images seen", ylabel="error on held-out images, %")
    scale_by_logarithm(axes)


def _draw_fewer(axes: Axes, table: Table, results: Sequence[Result]) -> None:
    for title in dict.fromkeys(row.title.rpartition(", ")[0] for row in table.rows):
        rows = [row for row in table.rows if row.title.rpartition(", ")[0] == title]
        points = [(row.training_images or 60_000, "plain", row) for row in rows]
        _plot_errors(axes, title, points, results)
    axes.set(xlabel="training images", ylabel="test error, %", xscale="log", ylim=(0, None))


def _draw_transformed(axes: Axes, table: Table, results: Sequence[Result]) -> None:
    for row in table.rows:
        points = [(int(test.split()[1]), test, row) for test in row.tests if "affine" in test]
        _plot_errors(axes, row.title, points, results)
    axes.set(xlabel="share of affNIST's ranges, %", ylabel="test error, %", ylim=(0, None))


def _plot_errors(
    axes: Axes, title: str, points: Sequence[tuple[float, str, Row]], results: Sequence[Result]
) -> None:
    """Errors of test sets of rows at abscissas, with their intervals."""
    known = [(x, score(own, test)) for x, test, row in points if (own := of_row(row, results))]
    if not known:
        return
    x = [place for place, _ in known]
    y = [found.percent for _, found in known]
    reach = [
        [one.percent - one.low for _, one in known],
        [one.high - one.percent for _, one in known],
    ]
    axes.errorbar(x, y, reach, label=title, marker="o", markersize=4, capsize=3)


DRAWN: dict[str, Callable[[Axes, Table, Sequence[Result]], None]] = {
    "em-iterations": _draw_curves,
    "fewer-images": _draw_fewer,
    "transformed-digits": _draw_transformed,
}
"""What is drawn of a table."""
