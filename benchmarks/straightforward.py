"""The baseline: a capsule network's encoder as public PyTorch implementations mostly write it.

Input capsules are repeated for every class, votes are one einsum, and routing starts from logits
of zeros and weighs and compares votes element by element.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig


class StraightforwardCapsNet(nn.Module):
    """Convolution, primary capsules, routed class capsules; no decoder."""

    def __init__(self, config: DynamicConfig) -> None:
        super().__init__()
        c = self.config = config
        first: Any = c.stem[0]
        self.conv = nn.Conv2d(c.channels, first.channels, first.kernel, first.stride)
        channels = c.primary_types * c.primary_dim
        self.primary = nn.Conv2d(first.channels, channels, c.primary_kernel, c.primary_stride)
        shape = (c.num_primary, c.num_classes, c.class_dim, c.primary_dim)
        self.weight = nn.Parameter(torch.empty(shape))
        """W, (I, K, D, primary_dim)."""

    @classmethod
    @torch.no_grad()
    def of(cls, network: DynamicCapsNet) -> Self:
        """The same network, with the same weights, written the other way."""
        c = network.config
        baseline = cls(c).eval()
        baseline.conv.load_state_dict(network.stem[0].state_dict())
        baseline.primary.load_state_dict(network.primary.conv.state_dict())
        split = network.votes.weight.view(-1, c.primary_dim, c.num_classes, c.class_dim)
        baseline.weight.copy_(split.permute(0, 2, 3, 1))
        return baseline

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Encode images (N, 1, H, W) as presence (N, K) and poses (N, K, D)."""
        c = self.config
        maps = self.primary(torch.relu(self.conv(images)))
        grouped = maps.view(images.shape[0], c.primary_types, c.primary_dim, -1)
        capsules = squash(grouped.permute(0, 1, 3, 2).reshape(images.shape[0], -1, c.primary_dim))
        tiled = capsules.unsqueeze(2).repeat(1, 1, c.num_classes, 1)  # (N, I, K, primary_dim)
        poses = route(torch.einsum("ikdp,nikp->nikd", self.weight, tiled), c.routing_iterations)
        return torch.linalg.vector_norm(poses, dim=-1), poses


def route(votes: Tensor, iterations: int) -> Tensor:
    """Route votes (N, I, K, D) to poses (N, K, D)."""
    logits = torch.zeros(votes.shape[:3], device=votes.device)  # (N, I, K)
    for iteration in range(iterations):
        couplings = torch.softmax(logits, dim=2)
        poses = squash((couplings.unsqueeze(-1) * votes).sum(dim=1))
        if iteration < iterations - 1:
            logits = logits + (votes * poses.unsqueeze(1)).sum(dim=-1)
    return poses


def squash(capsules: Tensor) -> Tensor:
    """Shrink vectors (..., D): v = |s|^2 / (1 + |s|^2) * s / |s|."""
    norm = torch.linalg.vector_norm(capsules, dim=-1, keepdim=True)
    shrunk: Tensor = norm**2 / (1 + norm**2) * capsules / (norm + 1e-8)
    return shrunk


def write_graph(baseline: StraightforwardCapsNet, path: Path) -> None:
    """Export by a plain `torch.onnx.export`: float32, dynamic batch, nothing rewritten."""
    shape = baseline.config.image_shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        torch.onnx.export(
            baseline,
            (torch.zeros(2, *shape),),
            path,
            input_names=["images"],
            output_names=["presence", "poses"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
