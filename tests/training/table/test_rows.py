from __future__ import annotations

import math

import pytest

from training.recipes import Recipe
from training.table.row import SIZES, Section
from training.table.rows import FEWER, ROWS, SECTIONS


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_sections_have_rows_that_measure_what_they_show(section: Section) -> None:
    """Each stem is a compact row, with the test sets of the section's columns."""
    for stem in section.stems:
        assert section.columns.keys() <= set(ROWS[f"{stem}-compact"].tests)
    assert section.paper.keys() <= set(section.stems)


def test_every_row_is_shown() -> None:
    """Nothing is trained that no section wants."""
    assert {row.stem for row in ROWS.values()} == {
        stem for section in SECTIONS for stem in section.stems
    }


@pytest.mark.parametrize(
    ("name", "iterations", "weight", "gradient"),
    [
        ("mnist-r1-none-compact", 1, 0.0, "all"),
        ("mnist-r3-paper", 3, 0.0005, "all"),
        ("mnist-r3-paper-code-compact", 3, 0.01, "all"),
        ("mnist-r3-paper-last-compact", 3, 0.0005, "last"),
        ("multimnist-r1-paper-compact", 1, 0.0005, "all"),
    ],
)
def test_rows_are_trained_as_they_are_called(
    name: str, iterations: int, weight: float, gradient: str
) -> None:
    """Iterations, weight of the reconstruction and the gradient's way are the name's."""
    recipe: Recipe = ROWS[name].recipe
    network = recipe.network
    actual = (network.routing_iterations, recipe.reconstruction_weight, network.routing_gradient)
    assert (iterations, weight, gradient) == actual
    assert recipe.baseline is None


def test_baselines_have_no_capsules() -> None:
    """And are the only rows without."""
    assert {name for name in ROWS if "baseline" in name} == {
        name for name, row in ROWS.items() if row.recipe.baseline
    }


@pytest.mark.parametrize("count", FEWER)
def test_fewer_images_are_seen_as_often_in_all(count: int) -> None:
    """The budget of a row with fewer images is that of the whole set."""
    few, whole = ROWS[f"mnist-r3-paper-{count}-compact"], ROWS["mnist-r3-paper-compact"]
    assert (count, whole.images) == (few.training_images, few.images)


def test_rows_of_the_test_split_exist_in_both_sizes() -> None:
    """Those to choose by are compact ones alone."""
    tested = [row for row in ROWS.values() if row.split == "test"]
    full, compact = ({row.stem for row in tested if row.size == size} for size in SIZES)
    assert full == compact
    assert {"compact"} == {row.size for row in ROWS.values() if row.split == "validation"}


def test_compact_rows_of_each_split_take_half_an_hour_at_most() -> None:
    """By their own estimate, of which full-size rows have none."""
    for split in ("test", "validation"):
        rows = [row for row in ROWS.values() if (row.size, row.split) == ("compact", split)]
        assert 30 * 60 > sum(row.seconds for row in rows) > 0
    assert all(math.isinf(row.seconds) for row in ROWS.values() if row.size == "full")
