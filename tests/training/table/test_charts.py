from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image

from model.plot import Line, Mark, Point
from training.table.charts import (
    PICTURES,
    draw_pictures,
    fewer_images_chart,
    sizes_chart,
    transformed_chart,
)
from training.table.encoders import Encoder
from training.table.results import Result

Encoders = dict[str, Encoder]


def test_errors_over_the_number_of_images(results: list[Result]) -> None:
    """A line for each network that was run: means over seeds, from 100 images to all."""
    lines = fewer_images_chart(results, {}).lines
    assert ["baseline CNN, compact", "CapsNet, compact"] == [line.name for line in lines]
    assert [Point(x, 1.5) for x in (100, 1000, 10_000, 60_000)] == list(lines[0].points)


def test_errors_over_transformations(results: list[Result]) -> None:
    """From a quarter of affNIST's ranges to all of them."""
    points = transformed_chart(results, {}).lines[1].points
    assert [Point(x, y) for x, y in ((25, 51.5), (50, 61.5), (75, 71.5), (100, 81.5))] == points


def test_errors_over_speeds(results: list[Result], encoders: Encoders) -> None:
    """Each size that has both; a line joins those that no other beats in both."""
    slow, fast = Point(1000, 1.5), Point(2000, 1.5)
    names = ("compact", "32x4")
    chart = sizes_chart(results, encoders)
    assert [Mark(slow, names[0]), Mark(fast, names[1])] == chart.marks
    assert [Line([slow, fast])] == chart.lines
    worse = [
        replace(one, errors={"plain": 9.0}) if one.row == "held-out-mnist-compact" else one
        for one in results
    ]
    assert [Line([fast])] == sizes_chart(worse, encoders).lines


def test_pictures_are_drawn_where_there_are_results(
    results: list[Result], encoders: Encoders, tmp_path: Path
) -> None:
    """As PNG files; without results there is none."""
    draw_pictures([], encoders, tmp_path)
    assert [] == list(tmp_path.iterdir())
    draw_pictures(results, encoders, tmp_path)
    for name in PICTURES:
        with Image.open(tmp_path / name) as picture:
            assert "PNG" == picture.format
