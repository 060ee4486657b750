from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from model.capsnet import build
from model.capsnet.squash import squash_exponential
from research.controls import register
from research.tables import ROWS
from training.losses import classification_loss
from training.recipes import Recipe


@pytest.fixture(autouse=True)
def pooled() -> None:
    """The CNN with pooling is a family."""
    register()


def test_uniform_couplings_give_every_class_the_same_share() -> None:
    """Poses are the squashed mean over classes of the sum of votes, without the coupling bias."""
    network: Any = build(ROWS["matched-mnist-attention-uniform"].recipe.network).eval()
    images = torch.rand(2, 1, 28, 28)
    with torch.inference_mode():
        votes = network.votes(network.primary_capsules(images))
        expected = squash_exponential(votes.sum(dim=2) / 10)
        torch.testing.assert_close(expected, network(images).poses)
        network.prior.fill_(5.0)
        torch.testing.assert_close(expected, network(images).poses)


@pytest.mark.parametrize("family", ["dynamic", "shared", "matrix"])
def test_one_iteration_is_uniform(family: str) -> None:
    """Every parent gets the same share of an input's votes."""
    name = "matrix" if family == "matrix" else "mnist"
    network = build(ROWS[f"matched-{name}-{family}-uniform"].recipe.network).eval()
    with torch.inference_mode():
        couplings = network.trace(torch.rand(2, 1, 28, 28)).classes.couplings
    torch.testing.assert_close(couplings, torch.full_like(couplings, 0.1))


def test_linear_layers_to_poses_squash_as_their_family_does() -> None:
    """Agreement's squash halves a unit vector, that of self-attention does not."""
    sums = torch.zeros(1, 10, 16)
    sums[..., 0] = 1
    for family, expected in (("dynamic", 0.5), ("attention", 1 - math.exp(-1))):
        network: Any = build(ROWS[f"matched-mnist-{family}-poses"].recipe.network).eval()
        torch.nn.init.zeros_(network.classes.weight)
        network.classes.bias.data = sums.flatten()
        with torch.inference_mode():
            presence = network(torch.rand(1, 1, 28, 28)).presence
        assert pytest.approx(expected, rel=1e-3) == presence[0, 0].item()


@pytest.mark.parametrize(
    "name",
    [
        "mnist-attention-poses",
        "mnist-dynamic-poses",
        "pairs-attention-poses",
        "matrix-matrix-poses",
    ],
)
def test_no_class_is_present_before_training(name: str) -> None:
    """A squash that is saturated from the beginning learns slowly, and would be no fair control."""
    torch.manual_seed(0)
    config = ROWS[f"matched-{name}"].recipe.network
    with torch.inference_mode():
        presence = build(config).train()(torch.rand(4, *config.image_shape)).presence
    assert presence.max() < 0.5


@pytest.mark.parametrize("row", ["matched-pairs-attention-linear", "matched-pairs-cnn-same"])
def test_labels_are_learnt_one_by_one(row: str) -> None:
    """Two digits may be present: the loss of a class does not depend on the others' logits."""
    recipe = ROWS[row].recipe
    loss = classification_loss(recipe)
    present = torch.zeros(1, 10)
    present[0, :2] = 1
    sure = torch.full((1, 10), -20.0)
    sure[0, :2] = 20
    assert 0 == pytest.approx(loss(sure, present, torch.tensor(1)).item(), abs=1e-6)


def test_recipes_of_controls_survive_being_written() -> None:
    """As in a checkpoint."""
    recipe = ROWS["matched-mnist-cnn-large"].recipe
    assert recipe == Recipe.from_dict(recipe.to_dict())
