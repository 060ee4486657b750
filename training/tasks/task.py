"""What a network is trained to do: what a batch is, its loss, and how errors are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.data.datasets import Examples
from training.recipes import Recipe
from training.tasks.digits import BaselineDigits, Digits
from training.tasks.losses import Losses
from training.tasks.pairs import BaselinePairs, Pairs


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


def make_task(recipe: Recipe, training: Examples, *, seed: int, device: torch.device) -> Task:
    """The task that the recipe names."""
    capsules: dict[str, type[Digits | Pairs]] = {"digits": Digits, "pairs": Pairs}
    baselines: dict[str, type[Digits | Pairs]] = {"digits": BaselineDigits, "pairs": BaselinePairs}
    kinds = capsules if recipe.baseline is None else baselines
    return kinds[recipe.task](recipe, training, seed=seed, device=device)
