from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from model.capsnet import build, family_of
from research.compare import of_row
from research.controls import register
from research.rows import Table
from research.run import read_results
from research.tables import ROWS, TABLES
from training.losses import classification_loss

DOCS = Path(__file__).parents[2] / "docs"


def differences(one: object, other: object) -> dict[str, object]:
    """What a dataclass has that another one has not."""
    return {
        field.name: getattr(one, field.name)
        for field in fields(one)  # type: ignore[arg-type]
        if getattr(one, field.name) != getattr(other, field.name)
    }


@pytest.mark.parametrize("one", TABLES.values(), ids=TABLES)
def test_tables_measure_what_they_show(one: Table) -> None:
    """Each row has the test sets of the columns, and rows of one name are the same row."""
    for row in one.rows:
        assert set(one.columns) <= set(row.tests)
        assert ROWS[row.name].recipe == row.recipe
        assert ROWS[row.name] == row


@pytest.mark.parametrize(
    ("name", "iterations", "weight"),
    [
        ("digits-r1-none", 1, 0.0),
        ("digits-r3-text", 3, 0.392),
    ],
)
def test_rows_are_trained_as_they_are_called(name: str, iterations: int, weight: float) -> None:
    """Iterations and the weight of the reconstruction are the name's."""
    recipe = ROWS[name].recipe
    actual = (recipe.network.routing_iterations, recipe.mse_weight)  # type: ignore[attr-defined]
    assert (iterations, weight) == actual


@pytest.mark.parametrize("name", ["multimnist", "family-mnist", "family-fashion-mnist"])
def test_heads_share_all_but_the_head(name: str) -> None:
    """The same convolutions, data and budget; a linear layer has another loss and draws nothing."""
    capsules, linear = ROWS[f"{name}-attention"], ROWS[f"{name}-linear"]
    assert capsules.images == linear.images
    assert capsules.recipe.network.stem == linear.recipe.network.stem  # type: ignore[attr-defined]
    changed = differences(linear.recipe, capsules.recipe).keys()
    assert {"network", "loss", "mse_weight"} == changed


@pytest.mark.parametrize(
    ("capsules", "poses"),
    [
        ("matched-pairs-attention-routed", "matched-pairs-attention-poses"),
        ("matched-mnist-attention-routed", "matched-mnist-attention-poses"),
        ("matched-mnist-dynamic-routed", "matched-mnist-dynamic-poses"),
        ("digits-r3-text-100", "few-poses-100"),
    ],
)
def test_a_head_of_poses_differs_in_its_network_alone(capsules: str, poses: str) -> None:
    """The same loss, reconstruction, data and budget, and as many weights of the head."""
    register()
    rows = ROWS[capsules], ROWS[poses]
    assert {"network"} == differences(rows[1].recipe, rows[0].recipe).keys()
    assert (rows[0].images, rows[0].training_images) == (rows[1].images, rows[1].training_images)
    votes, linear = (dict(build(row.recipe.network).named_parameters()) for row in rows)
    assert votes["votes.weight"].numel() == linear["classes.weight"].numel()
    shapes = {name: part.shape for name, part in linear.items() if name.startswith("decoder")}
    assert shapes == {name: votes[name].shape for name in shapes}


def test_a_head_of_poses_has_a_gradient_everywhere() -> None:
    """Of length and reconstruction, as capsules have."""
    register()
    network = build(ROWS["matched-pairs-attention-poses"].recipe.network)
    presence, poses = network(torch.rand(4, 1, 36, 36))
    loss = presence.sum() + network.decode(poses[:, 0], torch.zeros(4, dtype=torch.int64)).sum()
    loss.backward()
    assert all(part.grad is not None and part.grad.any() for part in network.parameters())
    assert ((4, 10), (4, 10, 16)) == (presence.shape, poses.shape)


@pytest.mark.parametrize(("name", "seeds"), [("digits-baseline", (1, 2, 3)), ("em-mean-3", (1,))])
def test_rows_have_the_seeds_of_the_page(name: str, seeds: tuple[int, ...]) -> None:
    """So that the command below a table gives its rows again."""
    assert seeds == ROWS[name].seeds


def test_results_are_of_declared_seeds() -> None:
    """No seed is shown that the command below the table would not run again."""
    register()
    results = read_results(DOCS / "results.json")
    for row in ROWS.values():
        assert {one.seed for one in of_row(row, results)} <= set(row.seeds), row.name


@pytest.mark.parametrize("name", ["multimnist-linear", "family-mnist-linear"])
def test_a_linear_head_has_a_gradient_everywhere(name: str) -> None:
    """Cross-entropy is of its logits, with a sigmoid for each class of pairs."""
    register()
    recipe = ROWS[name].recipe
    network = build(recipe.network)
    size = recipe.network.height
    logits = network.logits(torch.rand(4, 1, size, size))
    loss = classification_loss(recipe)(logits, torch.eye(10)[:4], torch.tensor(1))
    loss.backward()
    assert all(part.grad is not None and part.grad.any() for part in network.parameters())
    presence = network(torch.rand(4, 1, size, size)).presence
    assert (recipe.task == "pairs") == bool((presence.sum(dim=1) - 1).abs().max() > 1e-3)


def test_baselines_have_no_capsules() -> None:
    """Those of the paper are of the family without poses."""
    families = {family_of(row.recipe.network).name for n, row in ROWS.items() if "baseline" in n}
    assert {"baseline"} == families


def test_fewer_images_are_seen_as_often_in_all() -> None:
    """The budget of a row with fewer images is that of the whole set."""
    few, whole = ROWS["digits-r3-text-100"], ROWS["digits-r3-text-all"]
    assert (100, whole.images) == (few.training_images, few.images)


@pytest.mark.parametrize("name", ["side-by-side", "em-iterations"])
def test_rows_of_one_network_differ_in_it_alone(name: str) -> None:
    """The budget and the rest of the recipe are the same."""
    first, *others = TABLES[name].rows
    for row in others:
        (changed,) = differences(row.recipe, first.recipe)
        assert "network" == changed
        assert (first.images, first.tests) == (row.images, row.tests)


def test_networks_of_all_rows_can_be_made() -> None:
    """The CNN with pooling too, once it is registered."""
    register()
    for row in ROWS.values():
        assert family_of(row.recipe.network)
