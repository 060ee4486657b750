"""Networks whose weights are published, as the first layers of a stem.

Both are chains of inverted residual blocks with ReLU6. The tables are those of Sandler et al.,
"MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018), table 2, and of Tan and Le,
"EfficientNet" (2019), table 1; EfficientNet-Lite0 is the latter without squeeze and excitation,
with ReLU6, and without scaling of the first and last convolution.
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
    """The sizes of a network and the way its images are prepared."""

    stages: tuple[Stage, ...]
    mean: tuple[float, ...]
    """Subtracted from the pixels in [0, 1]: a value for each of 3 channels."""
    deviation: tuple[float, ...]
    """Divides the pixels after that."""
    epsilon: float
    """Of batch normalisation."""
    same: bool
    """Whether windows with a stride are padded as TensorFlow does: less before than after."""
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

    def padding(self, size: int, kernel: int, stride: int) -> tuple[int, int]:
        """Return the zeros before and after `size` pixels, so that ceil(size / stride) remain."""
        if not self.same or stride == 1:
            return kernel // 2, kernel // 2
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2


_LITE0_STAGES = (
    Stage(1, 16, 1, 1, 3),
    Stage(6, 24, 2, 2, 3),
    Stage(6, 40, 2, 2, 5),
    Stage(6, 80, 3, 2, 3),
    Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5),
    Stage(6, 320, 1, 1, 3),
)
_MOBILENET_STAGES = (
    Stage(1, 16, 1, 1, 3),
    Stage(6, 24, 2, 2, 3),
    Stage(6, 32, 3, 2, 3),
    Stage(6, 64, 4, 2, 3),
    Stage(6, 96, 3, 1, 3),
    Stage(6, 160, 3, 2, 3),
    Stage(6, 320, 1, 1, 3),
)
_IMAGENET_MEAN, _IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ARCHITECTURES = {
    "efficientnet-lite0": Architecture(
        _LITE0_STAGES, mean=(127 / 255,) * 3, deviation=(128 / 255,) * 3, epsilon=1e-3, same=True
    ),
    "efficientnet-lite0-timm": Architecture(
        _LITE0_STAGES, _IMAGENET_MEAN, _IMAGENET_DEVIATION, epsilon=1e-5, same=False
    ),
    "mobilenet-v2": Architecture(
        _MOBILENET_STAGES, _IMAGENET_MEAN, _IMAGENET_DEVIATION, epsilon=1e-5, same=False
    ),
}
"""Architectures by name.

`efficientnet-lite0` is TensorFlow's, `efficientnet-lite0-timm` was trained by timm with symmetric
padding, `mobilenet-v2` is torchvision's.
"""


class PaddedConv(nn.Conv2d):
    """A convolution of an image padded as its architecture does."""

    def __init__(
        self,
        architecture: Architecture,
        inputs: int,
        outputs: int,
        *,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
    ) -> None:
        even = stride == 1 or not architecture.same
        padding = kernel // 2 if even else 0
        super().__init__(inputs, outputs, kernel, stride, padding, groups=groups)
        self._architecture = None if even else architecture

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, outputs, ceil(H / stride), ceil(W / stride))."""
        if self._architecture is not None:
            (kernel, _), (stride, _) = self.kernel_size, self.stride
            height, width = features.shape[-2:]
            across = self._architecture.padding(int(width), kernel, stride)
            down = self._architecture.padding(int(height), kernel, stride)
            features = functional.pad(features, (*across, *down))
        return super().forward(features)


class InvertedResidual(nn.Module):
    """A block: widen each pixel, filter each channel, narrow each pixel; add the input if it fits.

    Args:
        inputs: the channels of the input.
    """

    def __init__(self, architecture: Architecture, inputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        layers = list[nn.Module]()
        if stage.expansion > 1:
            layers += _normed(architecture, PaddedConv(architecture, inputs, wide, kernel=1))
        filters = PaddedConv(
            architecture, wide, wide, kernel=stage.kernel, stride=stride, groups=wide
        )
        layers += _normed(architecture, filters)
        layers += _normed(architecture, PaddedConv(architecture, wide, stage.channels, kernel=1))
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

    Raises:
        ValueError: the images have other channels.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int, name: str) -> None:
        super().__init__()
        if channels not in (1, 3):
            raise ValueError(f"a pretrained network takes 1 or 3 channels, not {channels}")
        self._repeats = 3 // channels
        architecture = ARCHITECTURES[name]
        for what in ("mean", "deviation"):
            values = torch.tensor(getattr(architecture, what)).reshape(1, 3, 1, 1)
            self.register_buffer(what, values, persistent=False)
        first = PaddedConv(architecture, 3, architecture.first, kernel=3, stride=2)
        self.first = nn.Sequential(*_normed(architecture, first))
        blocks, inputs = list[nn.Module](), architecture.first
        for stage in architecture.stages:
            for number in range(stage.blocks):
                stride = 1 if number else stage.stride
                blocks.append(InvertedResidual(architecture, inputs, stage, stride))
                inputs = stage.channels
        self.blocks = nn.Sequential(*blocks)
        last = PaddedConv(architecture, inputs, architecture.features, kernel=1)
        self.last = nn.Sequential(*_normed(architecture, last))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 1 or 3, H, W) in [0, 1] to (N, features, ceil(H / 32), ceil(W / 32))."""
        coloured = torch.cat((images,) * self._repeats, dim=1) if self._repeats > 1 else images
        features: Tensor = self.first((coloured - self.mean) / self.deviation)
        last: Tensor = self.last(self.blocks(features))
        return last


def _normed(architecture: Architecture, conv: nn.Conv2d) -> list[nn.Module]:
    norm = nn.BatchNorm2d(conv.out_channels, eps=architecture.epsilon, momentum=0.01)
    return [conv, norm, nn.ReLU6()]
