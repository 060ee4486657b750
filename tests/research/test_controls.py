from __future__ import annotations

import numpy as np
import pytest
import torch

from model.capsnet import build
from research.controls import register
from research.run import side_by_side
from research.tables import ROWS
from training.data.datasets import Examples
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


@pytest.mark.parametrize("name", ["two-1", "two-3", "two-pooling"])
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


def test_recipes_of_the_pooled_network_survive_being_written() -> None:
    """As in a checkpoint."""
    recipe = ROWS["two-pooling"].recipe
    assert recipe == Recipe.from_dict(recipe.to_dict())
