"""Naming both digits of an image, and drawing each alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.capsnet import CapsNet
from training.baseline import Baseline
from training.data.datasets import Examples
from training.data.pairs import PairStream, validation_pairs
from training.evaluation.answers import measure_lengths, pair_errors
from training.recipes import Recipe
from training.tasks.losses import Losses, margin_loss, reconstruction_loss
from training.tasks.mixed_precision import encode, score


class Pairs:
    """Two digits of different classes in each image (paper, section 6)."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe = recipe
        self._device = device
        self.batches = PairStream(
            training,
            size=recipe.network.image_size,
            batch_size=recipe.batch_size,
            shift_px=recipe.shift_px,
            seed=seed,
            device=device,
        )

    @property
    def epoch_size(self) -> int:
        """A fixed number of pairs; there are too many to see them all."""
        return len(self.batches)

    def draw(self, step: int) -> tuple[Tensor, ...]:
        """Pairs of digits and their shifts."""
        return (self.batches.rows(step),)

    def losses(self, network: CapsNet, drawn: Sequence[Tensor]) -> Losses:
        """Two classes are present, and each one's capsule draws its digit alone."""
        images, layers, labels = self.batches.make(*drawn)
        lengths, poses = encode(network, images)
        present = torch.zeros_like(lengths).scatter_(1, labels, 1)
        margin = margin_loss(lengths, present)
        if self._recipe.reconstruction_weight == 0:
            return Losses(margin, torch.zeros_like(margin))
        own = poses.take_along_dim(labels[..., None], dim=1)  # (B, 2, D)
        decoded = network.decode(own.flatten(0, 1), labels.flatten())  # (2 B, 1, H, W)
        return Losses(margin, reconstruction_loss(decoded.reshape_as(layers), layers))

    def errors(self, network: nn.Module, validation: Examples) -> dict[str, float]:
        """How often the two longest capsules are not the two labels', on a fixed set of pairs."""
        size, shift_px = self._recipe.network.image_size, self._recipe.shift_px
        pairs = validation_pairs(validation, size=size, shift_px=shift_px)
        lengths = measure_lengths(network, pairs.images, device=self._device)
        errors = pair_errors(lengths, pairs.labels)
        return {
            "validation_error_percent": errors.pair_percent,
            "validation_digit_error_percent": errors.digit_percent,
        }


class BaselinePairs(Pairs):
    """Two digits in each image, for a network without capsules (paper, section 6)."""

    def losses(  # type: ignore[override]
        self, network: Baseline, drawn: Sequence[Tensor]
    ) -> Losses:
        """Cross-entropy of a sigmoid for each class, summed over classes; without dropout."""
        images, _, labels = self.batches.make(*drawn)
        logits = score(network, images)
        present = torch.zeros_like(logits).scatter_(1, labels, 1)
        each = nn.functional.binary_cross_entropy_with_logits(logits, present, reduction="none")
        loss = each.sum(dim=1).mean()
        return Losses(loss, torch.zeros_like(loss))
