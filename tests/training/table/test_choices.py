from __future__ import annotations

from dataclasses import fields

import pytest

from training.recipes import Recipe
from training.table.choices import choice_rows
from training.table.row import Row

ROWS = {row.stem: row for row in choice_rows()}


def differences(one: object, other: object) -> dict[str, object]:
    """What a dataclass has that another one has not."""
    return {
        field.name: getattr(one, field.name)
        for field in fields(one)  # type: ignore[arg-type]
        if getattr(one, field.name) != getattr(other, field.name)
    }


def test_nothing_is_chosen_on_the_test_split() -> None:
    """Every row is tested on held-out training images, with the budget of all others."""
    assert {"validation"} == {row.split for row in ROWS.values()}
    assert {60_000} == {row.images for row in ROWS.values()}


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("mnist-paper-decay", {"schedule": "exponential"}),
        ("mnist-no-warmup", {"warmup_steps": 0}),
        ("mnist-averaged", {"average_decay": 0.999}),
        ("mnist-no-shift", {"shift_px": 0}),
        ("fashion-mnist-paper-decay", {"schedule": "exponential"}),
        ("fashion-mnist-not-averaged", {"average_decay": 0.0}),
        ("fashion-mnist-no-flip", {"flip": False}),
        ("fashion-mnist-no-shift", {"shift_px": 0}),
    ],
)
def test_a_row_differs_in_one_part_of_the_recipe(stem: str, expected: dict[str, object]) -> None:
    """From the one whose preset it is: the change is what it is called."""
    changed = ROWS[f"held-out-{stem}"].recipe
    own = ROWS[f"held-out-{stem[: stem.index('mnist') + 5]}"].recipe
    assert expected == differences(changed, own)


@pytest.mark.parametrize(
    ("name", "primary_capsules", "field_px"),
    [("32x4", 144, 17), ("64x16", 576, 17), ("128x8", 288, 17), ("64x8-strided", 288, 17)],
)
def test_sizes_are_those_of_their_names(name: str, primary_capsules: int, field_px: int) -> None:
    """Nothing but the network differs, and strides leave what a capsule sees as it was."""
    row: Row = ROWS[f"held-out-mnist-{name}"]
    own: Recipe = ROWS["held-out-mnist"].recipe
    assert {"network"} == set(differences(row.recipe, own))
    network = row.recipe.network
    assert name.startswith(f"{network.conv_channels}x{network.primary_types}")
    assert (primary_capsules, field_px) == (network.num_primary, network.primary_field_px)
