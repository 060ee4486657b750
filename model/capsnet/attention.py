"""Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet" (2021): self-attention routing."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet.decoder import ClassCodes, build_decoder
from model.capsnet.network import STRICT, RoutedNetwork, Size
from model.capsnet.routing import SelfAttention, Votes
from model.capsnet.squash import squash_exponential
from model.capsnet.stem import Conv, Geometry, Stem, StemConfig, StemLayer
from model.outputs import Encoding, Trace

_SUM_STD = 0.4
"""W is sampled with this over sqrt(I) as standard deviation: the sum of the votes begins at the
same scale for any number of them and does not saturate the squash."""


@dataclass(frozen=True, config=STRICT)
class AttentionConfig(StemConfig):
    """Sizes of a network with self-attention routing; the defaults are the paper's for MNIST."""

    stem: tuple[StemLayer, ...] = (Conv(32, 5), Conv(64, 3), Conv(64, 3), Conv(128, 3, 2))
    norm_first: bool = False
    """Batch normalisation comes before each activation, not after it as in the paper."""
    primary: Literal["depthwise", "spatial"] = "depthwise"
    """`depthwise` filters each channel by a kernel as large as the grid, so that each type is one
    capsule; `spatial` keeps a capsule of each type in every cell."""
    primary_dim: Size = 8
    pose: Literal["routed", "homogeneous"] = "routed"
    """`routed`: routing finds the whole pose. `homogeneous`: it finds the length, and a code of the
    image by the class's own components the direction (see `ClassCodes`). Such a network
    decodes with the same components, so that its decoder has no other sizes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features % self.primary_dim:
            raise ValueError("the stem's channels must be a multiple of primary_dim")

    @property
    def grid(self) -> Geometry:
        """The grid of the primary capsules; a single cell if they are depthwise."""
        if self.primary == "spatial":
            return self.cells
        field = max(self.height, self.width)
        return Geometry(rows=1, columns=1, field_px=field, stride_px=field)

    @property
    def primary_types(self) -> int:
        """The number of capsules in each cell."""
        return self.features // self.primary_dim

    @property
    def num_primary(self) -> int:
        """The number of primary capsules, I (16 in the paper)."""
        return self.primary_types * self.grid.rows * self.grid.columns


class DepthwiseCells(nn.Module):
    """A depthwise convolution whose kernel is as large as the grid: one number for each channel.

    Written as a product and a sum, which a CPU does several times as fast as a grouped convolution.
    """

    def __init__(self, channels: int, cells: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, cells) / cells**0.5)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, channels, cells) to (N, channels, 1)."""
        return ((maps * self.weight).sum(dim=-1) + self.bias).unsqueeze(-1)


class AttentionCapsNet(RoutedNetwork):
    """Convolutions, primary capsules, self-attention to class capsules, decoder (figure 2)."""

    config: AttentionConfig

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(
            config.channels, config.stem, batch_norm=True, norm_first=config.norm_first
        )
        self.depthwise = None
        if config.primary == "depthwise":
            cells = config.cells.rows * config.cells.columns
            self.depthwise = DepthwiseCells(config.features, cells)
        self.votes = Votes(
            config.num_primary,
            in_dim=config.primary_dim,
            classes=config.num_classes,
            out_dim=config.class_dim,
            std=_SUM_STD / math.sqrt(config.num_primary),
        )
        self.prior = nn.Parameter(torch.zeros(config.num_classes, config.num_primary))
        """B, (K, I): the coupling bias, by the name that stored weights have."""
        self.routing = SelfAttention()
        homogeneous = config.pose == "homogeneous"
        self.decoder = ClassCodes(config) if homogeneous else build_decoder(config)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The class capsules are routed from the primary capsules, at once."""
        return (Layer("classes", 1, self.config.primary_types, *self.config.grid),)

    @property
    def routing_bias(self) -> Tensor:
        """The coupling bias B, (K, I)."""
        return self.prior

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to squashed capsules (N, I, primary_dim)."""
        self._check(images)
        config = self.config
        maps = self.stem(images).flatten(2)  # (N, channels, cells)
        if self.depthwise is not None:
            maps = self.depthwise(maps)
        grouped = maps.reshape(-1, config.primary_types, config.primary_dim, maps.shape[-1])
        capsules = grouped.transpose(2, 3).reshape(-1, config.num_primary, config.primary_dim)
        return squash_exponential(capsules.float())

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        presence, poses = super().forward(images)
        if isinstance(self.decoder, ClassCodes):
            poses = self.decoder.poses(presence, images)
        return Encoding(presence, poses)

    def trace(self, images: Tensor) -> Trace[Tensor]:
        """Encode images (N, C, H, W) in [0, 1], and keep the one iteration of routing."""
        classes, _ = super().trace(images)
        if isinstance(self.decoder, ClassCodes):
            poses = self.decoder.poses(classes.presence[:, -1], images)
            classes = classes._replace(poses=poses.unsqueeze(1))
        return Trace(classes)
