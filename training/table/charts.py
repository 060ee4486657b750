"""The page's pictures: errors over the number of training images, and over transformations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from model.plot import Chart, Line, Point, save_charts
from training.table.results import Result
from training.table.rows import FEWER, ROWS, SIZES, TRANSFORMED
from training.transforms import TRANSFORMS

ALL_IMAGES = 60_000
_NAMES = dict(zip(TRANSFORMED, ("baseline CNN", "CapsNet"), strict=True))


def fewer_images_chart(results: Sequence[Result]) -> Chart:
    """Test error over the number of training images, both logarithmic."""
    counts = {f"-{count}": count for count in FEWER} | {"": ALL_IMAGES}
    return Chart(
        "test error, %",
        _lines(
            lambda stem: [(f"{stem}{part}", "plain", count) for part, count in counts.items()],
            results,
        ),
        x_title="training images",
        logarithmic=True,
        logarithmic_x=True,
    )


def transformed_chart(results: Sequence[Result]) -> Chart:
    """Error over the share of affNIST's ranges."""
    shares = {
        name: int(name.removeprefix("affine ").removesuffix(" %"))
        for name in TRANSFORMS
        if name.startswith("affine")
    }
    lines = _lines(lambda stem: [(stem, name, share) for name, share in shares.items()], results)
    largest = max((point.y for line in lines for point in line.points), default=1)
    return Chart(
        "error on turned, scaled and sheared test digits, %",
        lines,
        x_title="share of affNIST's ranges, %",
        y_range=(0, largest),
    )


PICTURES: dict[str, Callable[[Sequence[Result]], Chart]] = {
    "fewer-images.png": fewer_images_chart,
    "transformed-digits.png": transformed_chart,
}


def draw_pictures(results: Sequence[Result], directory: Path) -> None:
    """Draw those pictures for which there are results."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        chart = make(results)
        if chart.lines:
            save_charts([chart], directory / name)


def _lines(
    place: Callable[[str], list[tuple[str, str, int]]], results: Sequence[Result]
) -> list[Line]:
    """A line for each network that has results.

    Args:
        place: for a stem, the points' stems, test sets and abscissas.
    """
    lines = []
    for size in SIZES:
        for stem, title in _NAMES.items():
            points = [
                Point(x, mean(errors))
                for point_stem, test, x in place(stem)
                if (errors := _errors(point_stem, size, test, results))
            ]
            if points:
                lines.append(Line(points, f"{title}, {size}"))
    return lines


def _errors(stem: str, size: str, test: str, results: Sequence[Result]) -> list[float]:
    """Of a row at its full budget, seed by seed."""
    row = next(row for row in ROWS.values() if (row.stem, row.size) == (stem, size))
    return [
        one.errors[test]
        for one in results
        if (one.row, one.images) == (row.name, row.images) and test in one.errors
    ]
