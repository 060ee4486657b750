"""The network that a recipe names, as it is before training."""

from __future__ import annotations

from model.capsnet import CapsNet
from training.baseline import Baseline
from training.recipes import Recipe

Network = CapsNet | Baseline


def make_network(recipe: Recipe) -> Network:
    """With random weights from torch's generator."""
    sizes = recipe.network
    if recipe.baseline is None:
        return CapsNet(sizes)
    return Baseline(recipe.baseline, image_size=sizes.image_size, num_classes=sizes.num_classes)
