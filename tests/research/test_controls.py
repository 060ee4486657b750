from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from model.capsnet import build
from model.capsnet.squash import squash_exponential
from model.capsnet.stem import Conv
from research.controls import register
from research.protocols import side_by_side
from research.tables import ROWS
from training.data.datasets import Examples
from training.losses import classification_loss
from training.recipes import Recipe


@pytest.fixture(autouse=True)
def pooled() -> None:
    """The CNN with pooling is a family."""
    register()


def test_pairs_side_by_side_are_of_different_digits(bars: Examples) -> None:
    """As many as digits, the left label's on the left, the same each time."""
    both, digits = side_by_side(bars)
    assert (24, 1, 28, 56) == both.images.shape
    assert (both.labels[:, 0] != both.labels[:, 1]).all()
    assert digits is not None
    assert np.array_equal(bars.labels[digits], both.labels)
    for image, labels in zip(both.images, both.labels, strict=True):
        for half, label in zip(np.split(image, 2, axis=2), labels, strict=True):
            assert np.array_equal(bars.images[label], half)
    assert np.array_equal(both.images, side_by_side(bars).examples.images)


@pytest.mark.parametrize("name", ["two-1", "two-3", "two-pooling", "two-summing"])
def test_networks_take_pairs_as_wide_as_two_digits(name: str) -> None:
    """With a presence in [0, 1] for each class."""
    network = build(ROWS[name].recipe.network).eval()
    with torch.inference_mode():
        presence = network(torch.rand(2, 1, 28, 56)).presence
    assert (2, 10) == presence.shape
    assert 0 <= presence.min() <= presence.max() <= 1


def test_pooling_forgets_where_things_are() -> None:
    """A drawing that moves by the convolutions' stride is the same; another drawing is not."""
    network = build(ROWS["two-pooling"].recipe.network).eval()
    images = torch.zeros(3, 1, 56, 56)
    images[0, 0, 16:26, 16:26] = torch.rand(10, 10)
    images[1] = images[0].roll((8, 12), (1, 2))
    images[2] = images[0].flip(2)
    with torch.inference_mode():
        here, there, other = network(images).presence
    torch.testing.assert_close(here, there, atol=1e-6, rtol=0)
    assert 1e-5 < (here - other).abs().max()


def test_sums_grow_with_what_is_in_the_image() -> None:
    """The same drawing twice has the mean of one, and the sum of two; both begin alike."""
    summed, pooled = (
        replace(ROWS[name].recipe.network, stem=(Conv(4, 1),), hidden=0)  # type: ignore[call-arg]
        for name in ("two-summing", "two-pooling")
    )
    torch.manual_seed(0)
    images = torch.rand(1, 1, 28, 28)
    both = torch.cat((images, images), dim=3)
    with torch.inference_mode():
        for config, growth in ((summed, 2), (pooled, 1)):
            torch.manual_seed(1)
            network: Any = build(config).eval()
            bias = network.classes.bias
            once, twice = (network.logits(part) - bias for part in (images, both))
            torch.testing.assert_close(growth * once, twice, rtol=1e-3, atol=1e-5)


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


def test_recipes_of_the_pooled_network_survive_being_written() -> None:
    """As in a checkpoint."""
    recipe = ROWS["two-pooling"].recipe
    assert recipe == Recipe.from_dict(recipe.to_dict())
