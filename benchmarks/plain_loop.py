"""The baseline of training: a loop as public PyTorch implementations mostly write it.

Eager float32, votes tiled and routed element by element, the decoder fed all capsules with every
class except one set to zero, Adam as it comes. Batches are given, so making them costs nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.straightforward import StraightforwardCapsNet
from model.capsnet.dynamic import DynamicCapsNet


class PlainLoop:
    """Trains the network that another starts from, written the other way.

    Args:
        mse_weight: of the mean squared error over pixels.
    """

    def __init__(self, network: DynamicCapsNet, *, mse_weight: float, device: torch.device) -> None:
        self._mse_weight = mse_weight
        self.encoder = StraightforwardCapsNet.of(network).to(device).train()
        self.decoder = _decoder_of(network).to(device)
        weights = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimiser = torch.optim.Adam(weights, lr=1e-3)

    def step(self, images: Tensor, layers: Tensor, labels: Tensor) -> Tensor:
        """One step.

        Args:
            images: (N, 1, H, W).
            layers: (N, C, H, W), what each of C digits alone looks like.
            labels: (N, C).

        Returns:
            (2,) margin and reconstruction loss, detached.
        """
        lengths, poses = self.encoder(images)
        classes = nn.functional.one_hot(labels, lengths.shape[1]).float()  # (N, C, K)
        present = classes.sum(dim=1)
        missing = present * torch.relu(0.9 - lengths) ** 2
        surplus = 0.5 * (1 - present) * torch.relu(lengths - 0.1) ** 2
        margin = (missing + surplus).sum(dim=1).mean()
        reconstruction = torch.zeros_like(margin)
        for place in range(labels.shape[1]):
            masked = (poses * classes[:, place, :, None]).flatten(1)
            error = self.decoder(masked) - layers[:, place].flatten(1)
            reconstruction = reconstruction + (error**2).mean()
        self.optimiser.zero_grad()
        loss: Any = margin + self._mse_weight * reconstruction
        loss.backward()
        self.optimiser.step()
        return torch.stack((margin, reconstruction)).detach()


@torch.no_grad()
def _decoder_of(network: DynamicCapsNet) -> nn.Sequential:
    """The same decoder, with the same weights, fed (N, K * D)."""
    ours: Any = network.decoder
    first = nn.Linear(ours.class_weight.shape[0] * ours.class_weight.shape[1], len(ours.class_bias))
    first.weight.copy_(ours.class_weight.flatten(0, 1).T)
    first.bias.copy_(ours.class_bias)
    hidden, pixels = (nn.Linear(one.in_features, one.out_features) for one in _linears(network))
    for copy, one in zip((hidden, pixels), _linears(network), strict=True):
        copy.load_state_dict(one.state_dict())
    return nn.Sequential(first, nn.ReLU(), hidden, nn.ReLU(), pixels, nn.Sigmoid())


def _linears(network: DynamicCapsNet) -> tuple[nn.Linear, nn.Linear]:
    decoder: Any = network.decoder
    return decoder.hidden, decoder.pixels
