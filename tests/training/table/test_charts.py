from __future__ import annotations

from pathlib import Path

from PIL import Image

from model.plot import Point
from training.table.charts import PICTURES, draw_pictures, fewer_images_chart, transformed_chart
from training.table.results import Result


def test_errors_over_the_number_of_images(results: list[Result]) -> None:
    """A line for each network that was run: means over seeds, from 100 images to all."""
    lines = fewer_images_chart(results).lines
    assert ["baseline CNN, compact", "CapsNet, compact"] == [line.name for line in lines]
    assert [Point(x, 1.5) for x in (100, 1000, 10_000, 60_000)] == list(lines[0].points)


def test_errors_over_transformations(results: list[Result]) -> None:
    """From a quarter of affNIST's ranges to all of them."""
    points = transformed_chart(results).lines[1].points
    assert [Point(x, y) for x, y in ((25, 51.5), (50, 61.5), (75, 71.5), (100, 81.5))] == points


def test_pictures_are_drawn_where_there_are_results(results: list[Result], tmp_path: Path) -> None:
    """As PNG files; without results there is none."""
    draw_pictures([], tmp_path)
    assert [] == list(tmp_path.iterdir())
    draw_pictures(results, tmp_path)
    for name in PICTURES:
        with Image.open(tmp_path / name) as picture:
            assert "PNG" == picture.format
