"""The convolutional network that Sabour et al. (2017) compare with. This family has no poses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.capsnet.network import STRICT, Network, NetworkConfig, Size
from model.outputs import Encoding


@dataclass(frozen=True, config=STRICT)
class BaselineConfig(NetworkConfig):
    """Sizes of a CNN; the defaults are the paper's (35.4 million parameters on MNIST)."""

    has_logits = True

    convs: tuple[Size, ...] = (256, 256, 128)
    """The channels of each convolution. Images keep their size."""
    kernels: tuple[Size, ...] = (5, 5, 5)
    """The side of each convolution's kernel, an odd number."""
    pooling: bool = False
    """Each convolution is followed by 2x2 max pooling."""
    hidden: tuple[Size, ...] = (328, 192)
    """The widths of the fully connected layers, except the last: an output for each class."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """The share of the last hidden layer's outputs that a training step leaves out."""
    multi_label: bool = False
    """Several classes may be present: each has a sigmoid, in place of one softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.convs) != len(self.kernels):
            raise ValueError("each convolution has a kernel")
        if self.pooling and min(self.height, self.width) < 2 ** len(self.convs):
            raise ValueError("the image is too small to be halved after each convolution")


class BaselineCnn(Network):
    """Convolutions and fully connected layers with ReLU, and a probability for each class."""

    config: BaselineConfig

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config
        channels, layers, rows, columns = config.channels, [], config.height, config.width
        for size, kernel in zip(config.convs, config.kernels, strict=True):
            layers += [nn.Conv2d(channels, size, kernel, padding=kernel // 2), nn.ReLU()]
            channels = size
            if config.pooling:
                layers.append(nn.MaxPool2d(2))
                rows, columns = rows // 2, columns // 2
        layers.append(nn.Flatten())
        features = channels * rows * columns
        for size in config.hidden:
            layers += [nn.Linear(features, size), nn.ReLU()]
            features = size
        self.features = nn.Sequential(*layers, nn.Dropout(config.dropout))
        self.classes = nn.Linear(features, config.num_classes)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Return the probabilities of images (N, C, H, W) in [0, 1]. Poses have no numbers."""
        logits = self.logits(images)
        presence = logits.sigmoid() if self.config.multi_label else logits.softmax(dim=1)
        return Encoding(presence, logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W) in [0, 1]."""
        self._check(images)
        scores: Tensor = self.classes(self.features(images)).float()
        return scores
