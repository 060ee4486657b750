from __future__ import annotations

from dataclasses import replace

import torch

from model.capsnet import build
from model.capsnet.attention import AttentionConfig
from model.capsnet.network import NetworkConfig
from training.growth import MAX_PX, fit_size
from training.recipes import PRESETS, Recipe

PICTURES = PRESETS["pictures"]


def fitted(size: int, *, recipe: Recipe = PICTURES) -> Recipe:
    """The recipe for square images of this size and three classes."""
    return fit_size(recipe, NetworkConfig(3, size, size, num_classes=3))


def test_the_grid_of_primary_capsules_stays_small() -> None:
    """3x3 to 7x7 cells, whatever the size."""
    for size in range(24, MAX_PX + 1):
        network = fitted(size).network
        assert isinstance(network, AttentionConfig)
        assert 3 <= network.grid.rows <= 7, size


def test_weights_do_not_grow_with_the_pictures() -> None:
    """A network for 224 pixels has at most a quarter more weights than one for 32."""
    with torch.device("meta"):
        counts = [
            sum(weight.numel() for weight in build(fitted(size).network).parameters())
            for size in (32, 64, 96, 128, 224)
        ]
    assert max(counts) < 1.25 * counts[0]


def test_lengths_stay_the_same_share_of_an_image() -> None:
    """Shifts and squares of four times the pixels; less of a batch is reconstructed."""
    recipe = replace(PICTURES, cutout_px=4, elastic_px=1.5)
    large = fitted(128, recipe=recipe)
    assert (12, 16, 6.0) == (large.shift_px, large.cutout_px, large.elastic_px)
    assert large.reconstruction_share <= recipe.reconstruction_share
