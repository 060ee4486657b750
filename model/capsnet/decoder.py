"""Reconstruction networks, which decode one class capsule's pose to pixels."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.capsnet.network import NetworkConfig


class ClassLayer(nn.Module):
    """The first layer of a decoder: one linear map for each class.

    The paper feeds all capsules with every class except one set to zero. Zeros contribute nothing,
    so one matrix for each class is stored, and only that of the class asked for is used.
    """

    def __init__(self, config: NetworkConfig, features: int) -> None:
        super().__init__()
        self.class_weight = nn.Parameter(
            torch.empty(config.num_classes, config.class_dim, features)
        )
        nn.init.xavier_uniform_(self.class_weight.view(-1, features))

    def multiply(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Map poses (M, D) of classes (M,), int64, to features (M, F), without a bias."""
        weight = self.class_weight.index_select(0, classes)  # (M, D, F)
        features: Tensor = torch.matmul(poses.unsqueeze(1), weight).squeeze(1)
        return features


class Decoder(ClassLayer):
    """512-1024-pixels, fully connected (Sabour 2017, figure 2)."""

    def __init__(self, config: NetworkConfig) -> None:
        first, second = config.decoder_hidden
        super().__init__(config, first)
        self.image_shape = config.image_shape
        self.class_bias = nn.Parameter(torch.zeros(first))
        self.hidden = nn.Linear(first, second)
        self.pixels = nn.Linear(second, math.prod(config.image_shape))

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        first = self.multiply(poses, classes) + self.class_bias
        second = self.hidden(first.relu()).relu()
        return torch.sigmoid(self.pixels(second)).reshape(-1, *self.image_shape)


class ConvolutionalDecoder(ClassLayer):
    """A coarse grid from fully connected layers, then stages that double it to the image.

    A stage is nearest-neighbour upsampling (Odena et al. 2016, "Deconvolution and Checkerboard
    Artifacts") and two 3x3 convolutions, each followed by GELU. Each class has a bias of its own.
    The image may be drawn smaller and doubled by linear interpolation (`decoder_doublings`). The
    number of weights depends on the coarse grid, not on the size of the image.
    """

    def __init__(self, config: NetworkConfig) -> None:
        (first,) = config.decoder_hidden
        super().__init__(config, first)
        self.image_shape = config.image_shape
        coarse, *widths = config.decoder_channels
        channels, height, width = config.image_shape
        self.enlargement = float(2**config.decoder_doublings)
        factor = 2 ** (len(widths) + config.decoder_doublings)
        self.grid = (coarse, math.ceil(height / factor), math.ceil(width / factor))
        self.class_bias = nn.Parameter(torch.zeros(config.num_classes, first))
        self.hidden = nn.Linear(first, math.prod(self.grid))
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(after, after, 3, padding=1),
                nn.GELU(),
            )
            for before, after in pairwise(config.decoder_channels)
        )
        self.pixels = nn.Conv2d(config.decoder_channels[-1], channels, 3, padding=1)

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        first = self.multiply(poses, classes) + self.class_bias.index_select(0, classes)
        coarse = functional.gelu(self.hidden(functional.gelu(first)))
        maps = coarse.reshape(-1, *self.grid)
        for stage in self.stages:
            maps = stage(functional.interpolate(maps, scale_factor=2.0, mode="nearest"))
        images = self.pixels(maps)
        if self.enlargement > 1:
            images = functional.interpolate(
                images, scale_factor=self.enlargement, mode="bilinear", align_corners=False
            )
        _, height, width = self.image_shape
        return torch.sigmoid(images[:, :, :height, :width])


def build_decoder(config: NetworkConfig) -> ClassLayer:
    """The decoder that a configuration asks for, with weights sampled by torch's generator."""
    return ConvolutionalDecoder(config) if config.decoder_channels else Decoder(config)


def decoder_channels_for(height: int, width: int, *, widest: int = 64) -> tuple[int, ...]:
    """Channels for images of a size, so that the coarse grid is about 8x8 (5x5 to 11x11) cells.

    Each stage has half as many channels as the one before, at least 16.
    """
    stages = max(1, round(math.log2(max(height, width) / 8)))
    return tuple(max(16, widest // 2**stage) for stage in range(stages + 1))
