"""Training losses, each averaged over the batch: `training.tasks.Task.losses` calls them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from training.recipes import Recipe

PRESENT = 0.9
"""The length m+ that a capsule should exceed where its class is present."""
ABSENT = 0.1
"""The length m- that a capsule should stay below where its class is absent."""

Losses = dict[str, Tensor]
"""Scalar losses by name, which `total_loss` weighs."""


def margin_loss(presence: Tensor, present: Tensor, *, absent_weight: float = 0.5) -> Tensor:
    """Sum squared hinges over classes, to a scalar (Sabour 2017, equation 4).

    Args:
        presence: (N, K) capsule lengths, as they are (no softmax).
        present: (N, K), 1 where the class is in the image and 0 elsewhere; several may be.
        absent_weight: lambda, so that absent classes do not shrink all lengths at the start.
    """
    missing = present * (PRESENT - presence).clamp_min(0).square()
    surplus = (1 - present) * (presence - ABSENT).clamp_min(0).square()
    return (missing + absent_weight * surplus).sum(dim=1).mean()


def spread_loss(presence: Tensor, present: Tensor, *, margin: Tensor | float) -> Tensor:
    """Compute sum_{i != t} max(0, m - (a_t - a_i))^2 (Hinton 2018, equation 3).

    Args:
        presence: (N, K) activations.
        present: (N, K), 1 for the one class that is present.
        margin: m.
    """
    target = (presence * present).sum(dim=1, keepdim=True)
    gaps = (margin - (target - presence)).clamp_min(0).square() * (1 - present)
    return gaps.sum(dim=1).mean()


def spread_margin(step: Tensor, steps: int) -> Tensor:
    """Return m, which rises from 0.2 to 0.99: 0.2 + 0.79 sigmoid(min(10, step / steps - 4)).

    Args:
        step: scalar tensor.
        steps: 50,000 in the paper's code.
    """
    return 0.2 + 0.79 * torch.sigmoid((step / steps - 4).clamp_max(10))


def classification_loss(recipe: Recipe, scores: Tensor, present: Tensor, step: Tensor) -> Tensor:
    """The recipe's loss.

    Args:
        scores: (N, K) presence, or logits for cross-entropy.
        present: (N, K), 1 where the class is in the image.
        step: a scalar, for the spread loss.
    """
    if recipe.loss == "spread":
        return spread_loss(scores, present, margin=spread_margin(step, recipe.spread_steps))
    if recipe.loss == "margin":
        return margin_loss(scores, present, absent_weight=recipe.absent_weight)
    if getattr(recipe.network, "multi_label", False):
        binary = functional.binary_cross_entropy_with_logits(scores, present, reduction="none")
        return binary.sum(dim=1).mean()
    return functional.cross_entropy(scores, present)


def total_loss(losses: Mapping[str, Tensor], recipe: Recipe) -> Tensor:
    """The sum of all terms, of which the reconstruction has the recipe's weight."""
    weights = {"reconstruction": recipe.mse_weight}
    return torch.stack([weights.get(name, 1.0) * loss for name, loss in losses.items()]).sum()
