"""What a result keeps, so that it can be doubted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from research.controls import register
from research.records import code_digest, pack, recipe_digest, unpack
from research.rows import Row
from research.tables import ROWS


@pytest.fixture
def row() -> Row:
    register()
    return ROWS["matched-mnist-dynamic-routed"]


@pytest.mark.parametrize(
    "change", [{"training_images": 100}, {"hold_out": True}, {"stop_percent": 1.0}], ids=str
)
def test_another_protocol_is_another_recipe(row: Row, change: dict[str, Any]) -> None:
    """What is learnt and when training stops count."""
    assert recipe_digest(row) != recipe_digest(replace(row, **change))


def test_an_edited_recipe_has_another_digest(row: Row) -> None:
    """A setting of training or of the network changes it."""
    recipe = row.recipe
    network = replace(recipe.network, routing_iterations=2)  # type: ignore[call-arg]
    others = [replace(recipe, learning_rate=2e-3), replace(recipe, network=network)]
    assert 3 == len({recipe_digest(replace(row, recipe=one)) for one in (recipe, *others)})


@pytest.mark.parametrize(
    "change", [{"images": 7}, {"seeds": (9,)}, {"title": "other"}, {"name": "other"}], ids=str
)
def test_names_seeds_and_budgets_are_no_recipe(row: Row, change: dict[str, Any]) -> None:
    """Results have them next to the digest."""
    assert recipe_digest(row) == recipe_digest(replace(row, **change))


def test_recipes_of_all_rows_have_a_digest(row: Row) -> None:
    """Controls too."""
    assert all(12 == len(recipe_digest(one)) for one in (row, *ROWS.values()))


def test_code_has_a_digest() -> None:
    """It is the same in one state of the code."""
    assert 12 == len(code_digest())
    assert code_digest() == code_digest()


@pytest.mark.parametrize("images", [[], [0], [3, 999], list(range(0, 1000, 7))], ids=len)
def test_packed_images_are_those_that_were_packed(images: list[int]) -> None:
    """In their order, in a short text."""
    text = pack(images, 1000)
    assert images == unpack(text)
    assert len(text) < 250


@pytest.mark.parametrize("text", ["", "?", "AAAA"])
def test_other_texts_are_refused(text: str) -> None:
    """A file that was edited by hand is noticed."""
    with pytest.raises(ValueError, match=r"."):
        unpack(text)
