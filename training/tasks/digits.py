"""Naming the one digit of an image, and drawing it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.capsnet import CapsNet
from training.baseline import Baseline
from training.data.batches import BatchStream
from training.data.datasets import Examples
from training.data.distortion import Distortion
from training.evaluation.answers import error_percent
from training.recipes import Recipe
from training.tasks.losses import Losses, margin_loss, reconstruction_loss
from training.tasks.mixed_precision import encode, score


class Digits:
    """One digit in each image."""

    def __init__(
        self, recipe: Recipe, training: Examples, *, seed: int, device: torch.device
    ) -> None:
        self._recipe = recipe
        self._seed = seed
        self._device = device
        self.batches = BatchStream(
            training,
            batch_size=recipe.batch_size,
            shift_px=recipe.shift_px,
            seed=seed,
            flip=recipe.flip,
            distortion=Distortion(recipe.affine, recipe.elastic_px),
            device=device,
        )

    @property
    def epoch_size(self) -> int:
        """Every training digit once."""
        return len(self.batches)

    def draw(self, step: int) -> tuple[Tensor, ...]:
        """Digits and their shifts."""
        return (self.batches.rows(step),)

    def losses(self, network: CapsNet, drawn: Sequence[Tensor]) -> Losses:
        """One class is present, and its capsule draws the image."""
        images, labels = self.batches.make(*drawn)
        lengths, poses = encode(network, images)
        present = torch.zeros_like(lengths).scatter_(1, labels[:, None], 1)
        margin = margin_loss(lengths, present)
        if self._recipe.reconstruction_weight == 0:
            return Losses(margin, torch.zeros_like(margin))
        own = poses.take_along_dim(labels[:, None, None], dim=1).squeeze(1)  # (B, D)
        return Losses(margin, reconstruction_loss(network.decode(own, labels), images))

    def errors(self, network: nn.Module, validation: Examples) -> dict[str, float]:
        """How often the longest capsule is not the label's."""
        error = error_percent(network, validation, device=self._device)
        return {"validation_error_percent": error}


class BaselineDigits(Digits):
    """One digit in each image, for a network without capsules (paper, section 5)."""

    def draw(self, step: int) -> tuple[Tensor, ...]:
        """Digits and their shifts, and what dropout leaves."""
        return *super().draw(step), self._keep(step)

    def losses(  # type: ignore[override]
        self, network: Baseline, drawn: Sequence[Tensor]
    ) -> Losses:
        """Cross-entropy of a softmax."""
        rows, kept = drawn
        images, labels = self.batches.make(rows)
        logits = score(network, images, kept)
        loss = nn.functional.cross_entropy(logits, labels)
        return Losses(loss, torch.zeros_like(loss))

    def _keep(self, step: int) -> Tensor:
        """Factors (B, F) of dropout, which depend on the seed and the step alone."""
        config = self._recipe.baseline
        assert config is not None
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        shape = (self._recipe.batch_size, config.hidden[-1])
        kept = torch.rand(shape, generator=generator) >= config.dropout
        return kept.to(self._device, non_blocking=True) / (1 - config.dropout)
