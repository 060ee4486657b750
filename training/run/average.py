"""The running average of a network's weights."""

from __future__ import annotations

from copy import deepcopy

import torch

from training.run.networks import Network


class RunningAverage:
    """A copy of a network whose weights follow, exponentially weighted, those of the original.

    torch's own `AveragedModel` would make the CPU wait for the GPU after every step.

    Args:
        decay: what a step leaves of the average so far, once that looks back over no more than
            about a tenth of the steps; before, it leaves less.
    """

    def __init__(self, network: Network, *, decay: float) -> None:
        self.network = deepcopy(network).requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def add(self, network: Network, *, step: int) -> None:
        """Take in the weights after a step, counted from zero, whose average they are."""
        share = max(1 - self._decay, 10 / (10 + step))
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.lerp_(weight, share)
