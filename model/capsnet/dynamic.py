"""Sabour, Frosst and Hinton, "Dynamic Routing Between Capsules" (2017), from top to bottom."""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet.decoder import build_decoder
from model.capsnet.network import STRICT, Positive, RoutedNetwork, Size
from model.capsnet.routing import RoutingByAgreement, Votes
from model.capsnet.squash import squash
from model.capsnet.stem import Conv, Geometry, Stem, StemConfig, StemLayer
from model.capsnet.winograd import WinogradConv2d

_SUM_STD = 1.7
"""W is sampled with 0.1 as standard deviation, as in the paper's code, or with this over sqrt(I)
where more than 288 capsules vote."""


@dataclass(frozen=True, config=STRICT)
class DynamicConfig(StemConfig):
    """Sizes of a network with dynamic routing; the defaults are the paper's MNIST network."""

    stem: tuple[StemLayer, ...] = (Conv(256, 9),)
    batch_norm: bool = False
    """Each convolution of the stem is followed by batch normalisation."""
    primary_types: Size = 32
    primary_dim: Size = 8
    primary_kernel: Size = 9
    primary_stride: Size = 2
    routing_iterations: Size = 3
    class_bias: bool = False
    """A learned bias added to each class capsule before its squash (the paper's code has one)."""
    primary_scale: Positive = 1.0
    """The factor on the primary capsules' sums, before their bias (the paper's code divides by 32).
    """
    initialisation: Literal["fan-in", "truncated-normal"] = "fan-in"
    """`truncated-normal` is the paper's code: sigma 0.1 (0.05 in the first layer), biases 0.1."""

    @property
    def grid(self) -> Geometry:
        """The grid of the primary capsules."""
        return self.cells.then(self.primary_kernel, self.primary_stride)

    @property
    def num_primary(self) -> int:
        """The number of primary capsules, I: types x rows x columns (1,152 in the paper)."""
        return self.primary_types * self.grid.rows * self.grid.columns


class PrimaryCapsules(nn.Module):
    """A convolution whose channels are grouped into capsules, type by type.

    Channel t * primary_dim + d holds component d of capsule type t; capsule
    i = (t * rows + y) * columns + x sits at row y and column x of the grid.
    """

    def __init__(self, config: DynamicConfig) -> None:
        super().__init__()
        self.config = config
        self.conv = WinogradConv2d(
            config.features,
            config.primary_types * config.primary_dim,
            config.primary_kernel,
            config.primary_stride,
            size=(config.cells.rows, config.cells.columns),
        )
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        assert self.conv.bias is not None
        nn.init.zeros_(self.conv.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, channels, rows, columns) to squashed capsules (N, I, primary_dim)."""
        config = self.config
        maps = self.conv(features)
        if config.primary_scale != 1:
            assert self.conv.bias is not None
            rest = (1 - config.primary_scale) * self.conv.bias
            maps = maps * config.primary_scale + rest[:, None, None]
        cells = config.grid.rows * config.grid.columns
        grouped = maps.reshape(-1, config.primary_types, config.primary_dim, cells)
        capsules = grouped.transpose(2, 3).reshape(-1, config.num_primary, config.primary_dim)
        return squash(capsules.float())


class DynamicCapsNet(RoutedNetwork):
    """Convolution, primary capsules, routed class capsules, decoder (figures 1 and 2)."""

    config: DynamicConfig

    def __init__(self, config: DynamicConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=config.batch_norm)
        self.primary = PrimaryCapsules(config)
        self.votes = Votes(
            config.num_primary,
            in_dim=config.primary_dim,
            classes=config.num_classes,
            out_dim=config.class_dim,
            std=min(0.1, _SUM_STD / math.sqrt(config.num_primary)),
        )
        bias = torch.full((config.num_classes, config.class_dim), 0.1)
        self.class_bias = nn.Parameter(bias) if config.class_bias else None
        self.routing = RoutingByAgreement(config.routing_iterations)
        self.decoder = build_decoder(config)
        if config.initialisation == "truncated-normal":
            self._initialise_as_the_papers_code()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The class capsules are routed from the grid of primary capsules."""
        config = self.config
        return (Layer("classes", config.routing_iterations, config.primary_types, *config.grid),)

    @property
    def routing_bias(self) -> Tensor | None:
        """The bias of the class capsules, (K, D)."""
        return self.class_bias

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to squashed capsules (N, I, primary_dim)."""
        self._check(images)
        capsules: Tensor = self.primary(self.stem(images))
        return capsules

    def encoders(self) -> dict[str, nn.Module]:
        """Return the plain encoder, and one for batches on a CPU."""
        plain = copy.deepcopy(self)
        plain.primary.conv.direct = True
        return {"encoder": plain, "encoder.batch": self}

    def _initialise_as_the_papers_code(self) -> None:
        for name, parameter in self.named_parameters():
            std = 0.05 if name.startswith("stem") else 0.1
            if name.endswith("bias"):
                nn.init.constant_(parameter, 0.1)
            elif parameter.ndim > 1:  # not the scale of batch normalisation
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)
