"""The two capsule layers: convolutional primary capsules and routed class capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.capsnet.config import CapsNetConfig
from model.capsnet.routing import RoutingTrace, route, trace
from model.capsnet.squash import squash
from model.capsnet.winograd import WinogradConv2d


class PrimaryCapsules(nn.Module):
    """A convolution whose channels are grouped into capsules, type by type.

    Channel t * primary_dim + d holds component d of capsule type t; capsule
    i = (t * grid + y) * grid + x sits at row y and column x of the grid.
    """

    def __init__(self, config: CapsNetConfig) -> None:
        super().__init__()
        self.config = config
        self.conv = WinogradConv2d(
            config.conv_channels,
            config.primary_types * config.primary_dim,
            config.primary_kernel,
            config.primary_stride,
            size=config.conv_size,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) features to (N, I, primary_dim) capsules, each shorter than one."""
        c = self.config
        maps = self.conv(features) * c.primary_scale
        if c.primary_relu:
            maps = maps.relu()
        grouped = maps.reshape(-1, c.primary_types, c.primary_dim, c.grid_size**2)
        return squash(grouped.transpose(2, 3).reshape(-1, c.num_primary, c.primary_dim).float())


class ClassCapsules(nn.Module):
    """One capsule for each class, fed by routed votes. Computed in float32 throughout."""

    def __init__(self, config: CapsNetConfig) -> None:
        super().__init__()
        self.config = config
        shape = (config.num_primary, config.primary_dim, config.num_classes * config.class_dim)
        self.weight = nn.Parameter(torch.empty(shape))
        """W, (I, primary_dim, K * D): each primary capsule's own transformation for each class."""
        self.bias = (
            nn.Parameter(torch.empty(config.num_classes, config.class_dim))
            if config.class_bias
            else None
        )

    def votes(self, primary: Tensor) -> Tensor:
        """u_hat = u W (paper, equation 2): (N, I, primary_dim) to (N, K, I, D)."""
        c = self.config
        with torch.autocast(primary.device.type, enabled=False):
            factors = primary.to(self.weight.dtype).transpose(0, 1)
            products = torch.matmul(factors, self.weight).float()  # (I, N, K * D)
        split = products.reshape(c.num_primary, -1, c.num_classes, c.class_dim)
        return split.permute(1, 2, 0, 3).contiguous()

    def forward(self, primary: Tensor) -> Tensor:
        """(N, I, primary_dim) primary capsules to (N, K, D) poses."""
        votes = self.votes(primary)
        with torch.autocast(votes.device.type, enabled=False):
            return route(
                votes,
                iterations=self.config.routing_iterations,
                bias=self.bias,
                gradient=self.config.routing_gradient,
            )

    def trace(self, votes: Tensor) -> RoutingTrace:
        """Every iteration of the routing of these votes (N, K, I, D)."""
        with torch.autocast(votes.device.type, enabled=False):
            return trace(votes, iterations=self.config.routing_iterations, bias=self.bias)
