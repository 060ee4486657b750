from __future__ import annotations

import numpy as np
import pytest

from model.plot import COLOURS, Chart, Line, Mark, Point, draw_charts


def rows_of(picture: np.ndarray, colour: str) -> list[float]:
    """The middle row of a colour in each column that has it."""
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    mask = np.abs(picture.astype(int) - wanted).max(axis=2) < 30
    return [float(np.flatnonzero(column).mean()) for column in mask.T if column.any()]


def draw(*charts: Chart) -> np.ndarray:
    return np.asarray(draw_charts(charts))


def test_values_on_a_line_lie_on_a_line() -> None:
    """Equal steps in y are equal steps in pixels."""
    points = [Point(x, 2 * x) for x in range(5)]
    rows = rows_of(draw(Chart("", [Line(points)])), COLOURS[0])
    slopes = np.diff(rows[10:-10:20])
    assert slopes.max() < 0
    assert slopes.mean() == pytest.approx(slopes, abs=1.1)


def test_powers_lie_on_a_line_where_y_is_logarithmic() -> None:
    """Each factor of ten takes as much room as the next."""
    points = [Point(x, 10.0**x) for x in range(5)]
    slopes = np.diff(rows_of(draw(Chart("", [Line(points)], logarithmic=True)), COLOURS[0])[::50])
    assert slopes[1:-1].mean() == pytest.approx(slopes[1:-1], abs=1.5)


def test_each_named_line_has_its_colour() -> None:
    """Also in the legend, which stands above the curves."""
    lines = [Line([Point(0, place), Point(1, place)], f"line {place}") for place in range(3)]
    picture = draw(Chart("three", lines))
    for colour in COLOURS[:3]:
        assert len(rows_of(picture, colour)) > 500


@pytest.mark.parametrize(
    "points", [[Point(1, 5)], [Point(0, 0), Point(1, 0)], [Point(3, 1e-9), Point(3, 1e9)]]
)
def test_lines_without_extent_are_drawn_too(points: list[Point]) -> None:
    """One point, a constant, a cliff: no division by zero."""
    assert rows_of(draw(Chart("", [Line(points)])), COLOURS[0])


def test_powers_lie_on_a_line_where_both_axes_are_logarithmic() -> None:
    """Each factor of ten in x takes as much room as the next, too."""
    points = [Point(10.0**power, 10.0**power) for power in range(5)]
    chart = Chart("", [Line(points)], logarithmic=True, logarithmic_x=True)
    slopes = np.diff(rows_of(draw(chart), COLOURS[0])[::50])
    assert slopes[1:-1].mean() == pytest.approx(slopes[1:-1], abs=1.5)


def test_marks_lie_where_lines_do() -> None:
    """Their dots cover a line's ends; names are written towards the middle."""
    ends = [Point(0, 0), Point(1, 1)]
    plain, marked = (
        draw(Chart("", [Line(ends)], [Mark(end, name) for end in ends]))
        for name in ("", "a long name of a mark")
    )
    assert len(rows_of(plain, COLOURS[0])) + 20 > len(rows_of(marked, COLOURS[0]))
    dots, names = ((picture != 255).any(axis=2).sum() for picture in (plain, marked))
    assert names > dots + 500
    assert (plain[:, -24:] == marked[:, -24:]).all()
