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


STAGES = (
    Stage(1, 16, 1, 1, 3),
    Stage(6, 24, 2, 2, 3),
    Stage(6, 40, 2, 2, 5),
    Stage(6, 80, 3, 2, 3),
    Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5),
    Stage(6, 320, 1, 1, 3),
)
FIRST, FEATURES = 32, 1280
"""The channels of the first convolution, and of the last one."""
_MEAN, _DEVIATION = 127 / 255, 128 / 255
"""Subtracted from the pixels in [0, 1]; divides them after that."""


def windows() -> Iterator[tuple[int, int]]:
    """The kernel and stride of each convolution that is larger than a pixel."""
    yield 3, 2
    for stage in STAGES:
        for block in range(stage.blocks):
            yield stage.kernel, 1 if block else stage.stride


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
    """EfficientNet-Lite0 up to its last features. Its weights are random until they are loaded.

    Args:
        channels: of an image: 3, or 1 for grey, which becomes three equal channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._repeats = 3 // channels
        self.first = nn.Sequential(*_normed(PaddedConv(3, FIRST, kernel=3, stride=2)))
        blocks, inputs = list[nn.Module](), FIRST
        for stage in STAGES:
            for number in range(stage.blocks):
                stride = 1 if number else stage.stride
                blocks.append(InvertedResidual(inputs, stage, stride))
                inputs = stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(*_normed(PaddedConv(inputs, FEATURES, kernel=1)))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 1 or 3, H, W) in [0, 1] to (N, features, ceil(H / 32), ceil(W / 32))."""
        coloured = torch.cat((images,) * self._repeats, dim=1) if self._repeats > 1 else images
        features: Tensor = self.first((coloured - _MEAN) / _DEVIATION)
        last: Tensor = self.last(self.blocks(features))
        return last


def _normed(conv: nn.Conv2d) -> list[nn.Module]:
    return [conv, nn.BatchNorm2d(conv.out_channels, eps=1e-3, momentum=0.01), nn.ReLU6()]
