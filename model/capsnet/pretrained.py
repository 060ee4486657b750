"""A network whose weights are published, as the first layers of a stem.

EfficientNet-Lite0 is a chain of inverted residual blocks with ReLU6: table 1 of Tan and Le,
"EfficientNet" (2019), without squeeze and excitation, and without scaling of the first and last
convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Stage(NamedTuple):
    """Blocks of the same number of output channels; the first one has the stride."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int


class Architecture(NamedTuple):
    """The sizes of a network."""

    stages: tuple[Stage, ...]
    first: int = 32
    """The channels of the first convolution."""
    features: int = 1280
    """The channels of the last one."""

    @property
    def windows(self) -> Iterator[tuple[int, int]]:
        """The kernel and stride of each convolution that is larger than a pixel."""
        yield 3, 2
        for stage in self.stages:
            for block in range(stage.blocks):
                yield stage.kernel, 1 if block else stage.stride


ARCHITECTURES = {
    "efficientnet-lite0": Architecture(
        (
            Stage(1, 16, 1, 1, 3),
            Stage(6, 24, 2, 2, 3),
            Stage(6, 40, 2, 2, 5),
            Stage(6, 80, 3, 2, 3),
            Stage(6, 112, 3, 1, 5),
            Stage(6, 192, 4, 2, 5),
            Stage(6, 320, 1, 1, 3),
        )
    )
}
"""Architectures by name."""
_MEAN, _DEVIATION = 127 / 255, 128 / 255
"""Subtracted from the pixels in [0, 1]; divides them after that."""


def zeros_around(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """The zeros before and after `size` pixels, so that ceil(size / stride) windows fit.

    TensorFlow pads so: less before than after.
    """
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class PaddedConv(nn.Conv2d):
    """A convolution of an image padded with zeros as TensorFlow does."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1
    ) -> None:
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, padding, groups=groups)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs, ceil(H / stride), ceil(W / stride))."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        if stride > 1:
            height, width = features.shape[-2:]
            across = zeros_around(int(width), kernel, stride)
            down = zeros_around(int(height), kernel, stride)
            features = functional.pad(features, (*across, *down))
        return super().forward(features)


class InvertedResidual(nn.Module):
    """A block: widen each pixel, filter each channel, narrow each pixel; add the input if it fits.

    Args:
        inputs: the channels of the input.
    """

    def __init__(self, inputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        layers = list[nn.Module]()
        if stage.expansion > 1:
            layers += _normed(PaddedConv(inputs, wide, kernel=1))
        layers += _normed(PaddedConv(wide, wide, kernel=stage.kernel, stride=stride, groups=wide))
        layers += _normed(PaddedConv(wide, stage.channels, kernel=1))
        self.layers = nn.Sequential(*layers[:-1])  # the narrow pixels stay as they are
        self._adds = stride == 1 and inputs == stage.channels

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, channels, ceil(H / stride), ceil(W / stride))."""
        change: Tensor = self.layers(features)
        return features + change if self._adds else change


class PretrainedNetwork(nn.Module):
    """A published network up to its last features. Its weights are random until they are loaded.

    Args:
        channels: of an image: 3, or 1 for grey, which becomes three equal channels.
        name: one of ARCHITECTURES.
    """

    def __init__(self, channels: int, name: str) -> None:
        super().__init__()
        self._repeats = 3 // channels
        architecture = ARCHITECTURES[name]
        first = PaddedConv(3, architecture.first, kernel=3, stride=2)
        self.first = nn.Sequential(*_normed(first))
        blocks, inputs = list[nn.Module](), architecture.first
        for stage in architecture.stages:
            for number in range(stage.blocks):
                stride = 1 if number else stage.stride
                blocks.append(InvertedResidual(inputs, stage, stride))
                inputs = stage.channels
        self.blocks = nn.Sequential(*blocks)
        last = PaddedConv(inputs, architecture.features, kernel=1)
        self.last = nn.Sequential(*_normed(last))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 1 or 3, H, W) in [0, 1] to (N, features, ceil(H / 32), ceil(W / 32))."""
        coloured = torch.cat((images,) * self._repeats, dim=1) if self._repeats > 1 else images
        features: Tensor = self.first((coloured - _MEAN) / _DEVIATION)
        last: Tensor = self.last(self.blocks(features))
        return last


def _normed(conv: nn.Conv2d) -> list[nn.Module]:
    return [conv, nn.BatchNorm2d(conv.out_channels, eps=1e-3, momentum=0.01), nn.ReLU6()]
