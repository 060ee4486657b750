"""The trainer of networks without capsules."""

from __future__ import annotations

import torch

from training.baseline import Baseline
from training.trainer import Plan, Trainer


class BaselineTrainer(Trainer):
    """The same loop around the network that the recipe names as `baseline`."""

    def __init__(self, plan: Plan, *, device: torch.device, resume: bool = False) -> None:
        super().__init__(plan, device=device, resume=resume)
        if not resume:
            self._exchange_network()

    def _restore(self) -> None:
        self._exchange_network()
        super()._restore()

    def _exchange_network(self) -> None:
        """Put the baseline, and an optimiser of its weights, in the place of the CapsNet."""
        recipe = self.plan.recipe
        assert recipe.baseline is not None
        torch.manual_seed(self.plan.seed)
        network = Baseline(
            recipe.baseline,
            image_size=recipe.network.image_size,
            num_classes=recipe.network.num_classes,
        ).to(self.device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = network  # type: ignore[assignment]
        self.optimiser = torch.optim.Adam(
            network.parameters(), lr=recipe.learning_rate, eps=1e-8, fused=True
        )


def make_trainer(plan: Plan, *, device: torch.device, resume: bool = False) -> Trainer:
    """The trainer that the recipe needs; see `Trainer` for arguments and errors."""
    kind = Trainer if plan.recipe.baseline is None else BaselineTrainer
    return kind(plan, device=device, resume=resume)
