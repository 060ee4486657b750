"""The running average of a network's weights."""

from __future__ import annotations

from copy import deepcopy

import torch

from training.networks import Network


class RunningAverage:
    """A copy of a network whose weights follow, exponentially weighted, those of the original.

    torch's own `AveragedModel` would make the CPU wait for the GPU after every step.

    Args:
        decay: what a step leaves of the average so far.
    """

    def __init__(self, network: Network, *, decay: float) -> None:
        self.network = deepcopy(network).requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def add(self, network: Network, *, step: int) -> None:
        """Take in the weights after a step; after the first, the average is the weights."""
        share = 1 - self._decay if step else 1.0
        for average, weight in zip(self.network.parameters(), network.parameters(), strict=True):
            average.lerp_(weight, share)
