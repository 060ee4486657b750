"""Controls match what they control, and results are of the recipes that are declared."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from benchmarks.families import count_multiplications
from model.capsnet import build
from research.compare import is_stale, of_row
from research.controls import register
from research.rows import Row
from research.run import read_results
from research.tables import FAMILIES, ROWS, SETS, TABLES, VARIANTS
from training.losses import classification_loss

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def controls() -> None:
    """Controls are families."""
    register()


def differences(one: object, other: object) -> set[str]:
    """The fields of a dataclass in which two differ."""
    return {
        field.name
        for field in fields(one)  # type: ignore[arg-type]
        if getattr(one, field.name) != getattr(other, field.name)
    }


def parameters(row: Row) -> int:
    """Of the encoder."""
    parts = build(row.recipe.network).named_parameters()
    return sum(one.numel() for name, one in parts if not name.startswith("decoder."))


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_a_table_learn_the_same_images(name: str) -> None:
    """With the same seeds, budget, augmentation, batches and tests; columns are test sets."""
    rows = TABLES[name].rows
    assert 1 == len({(row.images, row.seeds, row.tests, row.protocol) for row in rows})
    learnt = {
        (
            *(row.recipe.dataset, row.recipe.task, row.recipe.batch_size, row.recipe.flip),
            *(row.recipe.network.image_shape, row.recipe.network.num_classes),
        )
        for row in rows
    }
    assert 1 == len(learnt)
    assert set(TABLES[name].columns) <= set(rows[0].tests)


def test_every_row_has_a_title_and_a_network() -> None:
    """Of its family and variant."""
    for one in SETS.values():
        assert {family for family, _ in one.recipes} <= FAMILIES.keys()
        assert {variant for _, variant in one.recipes} <= VARIANTS.keys()


def test_routed_capsules_are_compared_with_every_control() -> None:
    """Each family's own, and a CNN."""
    compared = TABLES["matched-pairs"].compared
    routed = "matched-pairs-attention-routed"
    others = {one.second for one in compared if one.first == routed}
    assert {row.name for row in TABLES["matched-pairs"].rows} - {routed} == others


@pytest.mark.parametrize("name", [name for name in ROWS if name.endswith("-poses")])
def test_linear_layers_to_poses_have_as_many_parameters(name: str) -> None:
    """Within three in a hundred: biases, the coupling bias, batch normalisation."""
    routed = ROWS[name.replace("-poses", "-routed")]
    assert parameters(routed) == pytest.approx(parameters(ROWS[name]), rel=0.03)


@pytest.mark.parametrize(
    ("cnn", "capsules"),
    [
        ("mnist-cnn-large", "mnist-attention-routed"),
        ("mnist-cnn-small", "mnist-dynamic-routed"),
        ("pairs-cnn-same", "pairs-attention-routed"),
        ("assemblies-cnn-same", "assemblies-attention-routed"),
    ],
)
def test_cnns_have_as_many_multiplications(cnn: str, capsules: str) -> None:
    """Within a seventh."""
    ours, theirs = (
        count_multiplications(build(ROWS[f"matched-{name}"].recipe.network).eval())
        for name in (capsules, cnn)
    )
    assert ours == pytest.approx(theirs, rel=1 / 7)


def test_results_are_of_declared_recipes_and_seeds() -> None:
    """An edit of a recipe that has results would make the page say what nobody measured."""
    results = read_results(DOCS / "results.json")
    for row in ROWS.values():
        own = of_row(row, results)
        assert {one.seed for one in own} <= set(row.seeds), row.name
        assert not any(is_stale(row, one) for one in own), row.name


@pytest.mark.parametrize("name", ["pairs-attention", "mnist-attention", "mnist-dynamic"])
def test_a_head_of_poses_differs_in_its_network_alone(name: str) -> None:
    """The same loss, reconstruction, data and budget, and a gradient everywhere."""
    routed, poses = (ROWS[f"matched-{name}-{variant}"] for variant in ("routed", "poses"))
    assert differences(routed.recipe, poses.recipe) <= {"network", "muon_votes"}
    network = build(poses.recipe.network)
    presence, found = network(torch.rand(4, *poses.recipe.network.image_shape))
    loss = presence.sum() + network.decode(found[:, 0], torch.zeros(4, dtype=torch.int64)).sum()
    loss.backward()
    assert all(part.grad is not None and part.grad.any() for part in network.parameters())


@pytest.mark.parametrize("name", ["matched-pairs-attention-linear", "matched-mnist-cnn-small"])
def test_a_linear_head_has_a_gradient_everywhere(name: str) -> None:
    """Cross-entropy is of its logits, with a sigmoid for each class of pairs."""
    recipe = ROWS[name].recipe
    network = build(recipe.network)
    images = torch.rand(4, *recipe.network.image_shape)
    loss = classification_loss(recipe)(network.logits(images), torch.eye(10)[:4], torch.tensor(1))
    loss.backward()
    assert all(part.grad is not None and part.grad.any() for part in network.parameters())
    presence = network(images).presence
    assert (recipe.task == "pairs") == bool((presence.sum(dim=1) - 1).abs().max() > 1e-3)
