"""The page's pictures: errors over training images, transformations and an encoder's speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from model.plot import Chart, Line, Mark, Point, save_charts
from training.data.transforms import TRANSFORMS
from training.table.encoders import BATCHES, Encoder
from training.table.results import Result
from training.table.row import SIZES, row_name
from training.table.rows import FEWER, ROWS, TRANSFORMED

ALL_IMAGES = 60_000
Draw = Callable[[Sequence[Result], Mapping[str, Encoder]], Chart]
_NAMES = dict(zip(TRANSFORMED, ("baseline CNN", "CapsNet"), strict=True))


def fewer_images_chart(results: Sequence[Result], _: Mapping[str, Encoder]) -> Chart:
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


def transformed_chart(results: Sequence[Result], _: Mapping[str, Encoder]) -> Chart:
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


def sizes_chart(results: Sequence[Result], encoders: Mapping[str, Encoder]) -> Chart:
    """Error over images per second in batches; a line joins those that none beats in both."""
    marks = [
        Mark(Point(encoder.images_per_s[BATCHES[-1]], mean(errors)), _size(name))
        for name, encoder in encoders.items()
        if (errors := _errors(name, "plain", results))
    ]
    front = [
        mark.point
        for mark in sorted(marks)
        if not any(x >= mark.point.x and y < mark.point.y for (x, y), _ in marks)
    ]
    return Chart(
        "error on held-out digits, %",
        [Line(front)] if front else [],
        marks,
        x_title="images/s of a CPU thread, 32 at once",
        y_range=(0, max((mark.point.y for mark in marks), default=1)),
    )


PICTURES: dict[str, Draw] = {
    "fewer-images.png": fewer_images_chart,
    "transformed-digits.png": transformed_chart,
    "sizes.png": sizes_chart,
}


def draw_pictures(
    results: Sequence[Result], encoders: Mapping[str, Encoder], directory: Path
) -> None:
    """Draw those pictures for which there are results."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        chart = make(results, encoders)
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
                if (errors := _errors(row_name(point_stem, size), test, results))
            ]
            if points:
                lines.append(Line(points, f"{title}, {size}"))
    return lines


def _size(name: str) -> str:
    """What tells a row from the others; `compact` for the network whose sizes are changed."""
    return name.removeprefix("held-out-mnist-").removesuffix("-compact")


def _errors(name: str, test: str, results: Sequence[Result]) -> list[float]:
    """Of a row at its full budget, seed by seed."""
    return [
        one.errors[test]
        for one in results
        if (one.row, one.images) == (name, ROWS[name].images) and test in one.errors
    ]
