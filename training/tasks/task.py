"""What a network is trained to do: what a batch is, its loss, and how errors are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from model.capsnet import CapsNet
from model.capsnet.network import Encoding
from training.baseline import Baseline
from training.data.batches import BatchStream
from training.data.datasets import Examples
from training.data.pairs import PairStream, validation_pairs
from training.evaluation.answers import error_percent, measure_lengths, pair_errors
from training.recipes import Recipe
from training.tasks.losses import margin_loss, reconstruction_loss


class Losses(NamedTuple):
    """Both parts of the loss of one batch, averaged over it."""

    margin: Tensor
    """Of naming what is there; a cross-entropy where the network has no capsules."""
    reconstruction: Tensor
    """Summed over pixels; zero where reconstruction has no weight."""


class Task(Protocol):
    """What the trainer asks of a task."""

    @property
    def epoch_size(self) -> int:
        """Images in an epoch."""
        ...

    def draw(self, step: int) -> tuple[Tensor, ...]:
        """What decides the batch of a step, with a row for each image, on the training device.

        It depends on the seed and the step alone.
        """
        ...

    def losses(self, network: Any, drawn: Sequence[Tensor]) -> Losses:
        """Of a batch, or of some of its rows.

        Args:
            network: of the recipe's kind.
            drawn: as `draw` gives it.
        """
        ...

    def errors(self, network: nn.Module, validation: Examples) -> dict[str, float]:
        """Metrics on validation digits, `validation_error_percent` among them."""
        ...


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
        lengths, poses = _encode(network, images)
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
        lengths, poses = _encode(network, images)
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
        logits = _score(network, images, kept)
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


class BaselinePairs(Pairs):
    """Two digits in each image, for a network without capsules (paper, section 6)."""

    def losses(  # type: ignore[override]
        self, network: Baseline, drawn: Sequence[Tensor]
    ) -> Losses:
        """Cross-entropy of a sigmoid for each class, summed over classes; without dropout."""
        images, _, labels = self.batches.make(*drawn)
        logits = _score(network, images)
        present = torch.zeros_like(logits).scatter_(1, labels, 1)
        each = nn.functional.binary_cross_entropy_with_logits(logits, present, reduction="none")
        loss = each.sum(dim=1).mean()
        return Losses(loss, torch.zeros_like(loss))


def make_task(recipe: Recipe, training: Examples, *, seed: int, device: torch.device) -> Task:
    """The task that the recipe names."""
    capsules: dict[str, type[Digits | Pairs]] = {"digits": Digits, "pairs": Pairs}
    baselines: dict[str, type[Digits | Pairs]] = {"digits": BaselineDigits, "pairs": BaselinePairs}
    kinds = capsules if recipe.baseline is None else baselines
    return kinds[recipe.task](recipe, training, seed=seed, device=device)


def _encode(network: CapsNet, images: Tensor) -> Encoding:
    """Run the encoder; on a GPU its convolutions are in bfloat16."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        encoding: Encoding = network(images)
    return encoding


def _score(network: Baseline, images: Tensor, kept: Tensor | float = 1.0) -> Tensor:
    """Scores of classes; on a GPU products are in bfloat16."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, enabled=images.is_cuda):
        return network.logits(images, kept)
