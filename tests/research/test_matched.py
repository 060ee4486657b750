"""Controls match what they control."""

from __future__ import annotations

import pytest

from benchmarks.families import count_multiplications
from model.capsnet import build
from research.controls import register
from research.matched import FAMILIES, MATCHED, SETS, VARIANTS
from research.rows import Row
from research.tables import ROWS
from training.recipes import Recipe

ROWS_OF = {row.name: row for table in MATCHED.values() for row in table.rows}


def parameters(row: Row) -> int:
    """Of the encoder."""
    register()
    network = build(row.recipe.network)
    return sum(
        one.numel() for name, one in network.named_parameters() if not name.startswith("decoder.")
    )


@pytest.mark.parametrize("name", [name for name in ROWS_OF if name.endswith("-poses")])
def test_linear_layers_to_poses_have_as_many_parameters(name: str) -> None:
    """Within three in a hundred: biases, the coupling bias, batch normalisation."""
    routed = ROWS_OF[name.replace("-poses", "-routed")]
    assert parameters(routed) == pytest.approx(parameters(ROWS_OF[name]), rel=0.03)


@pytest.mark.parametrize(
    ("cnn", "capsules"),
    [
        ("matched-mnist-cnn-large", "matched-mnist-attention-routed"),
        ("matched-mnist-cnn-small", "matched-mnist-dynamic-routed"),
        ("matched-pairs-cnn-same", "matched-pairs-attention-routed"),
        ("matched-affnist-cnn-same", "matched-affnist-attention-routed"),
        ("matched-assemblies-cnn-same", "matched-assemblies-attention-routed"),
        ("matched-cifar-cnn-same", "matched-cifar-attention-routed"),
    ],
)
def test_cnns_have_as_many_multiplications(cnn: str, capsules: str) -> None:
    """Within a seventh."""
    register()
    ours, theirs = (
        count_multiplications(build(ROWS_OF[name].recipe.network).eval())
        for name in (capsules, cnn)
    )
    assert ours == pytest.approx(theirs, rel=1 / 7)


@pytest.mark.parametrize("name", SETS)
def test_rows_of_a_set_learn_the_same_images(name: str) -> None:
    """With the same seeds, budget, augmentation, batches and tests."""

    def learnt(recipe: Recipe) -> tuple[object, ...]:
        network = recipe.network
        return (
            *(recipe.dataset, recipe.task, recipe.batch_size, recipe.flip, recipe.affine),
            *(network.image_shape, network.num_classes),
        )

    rows = MATCHED[f"matched-{name}"].rows
    assert 1 == len({learnt(row.recipe) for row in rows})
    assert 1 == len({(row.images, row.seeds, row.tests, row.protocol) for row in rows})


def test_every_row_has_a_name_and_a_title() -> None:
    """The page's summary has a line for each family and variant."""
    assert ROWS_OF.keys() <= ROWS.keys()
    for one in SETS.values():
        for family, variant in one.recipes:
            assert family in FAMILIES
            assert variant in VARIANTS


def test_families_are_compared_with_their_controls() -> None:
    """Routed capsules come first in every finding."""
    for table in MATCHED.values():
        routed = {one.first for one in table.compared if one.is_finding}
        assert routed == {row.name for row in table.rows if row.name.endswith("-routed")}
        assert {one.second for one in table.compared} <= ROWS_OF.keys()
