"""The convolutional networks that the paper compares with (sections 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from torch import Tensor, nn


@dataclass(frozen=True)
class BaselineConfig:
    """Sizes of one network; the defaults are the paper's for MNIST, of 35.4 million weights."""

    channels: tuple[int, ...] = (256, 256, 128)
    """Of each convolution; zeros around the image keep its size."""
    kernels: tuple[int, ...] = (5, 5, 5)
    """Odd."""
    pooling: bool = False
    """Whether the largest of each 2x2 cells is taken after each convolution."""
    hidden: tuple[int, ...] = (328, 192)
    """Of each fully connected layer but the last, which has an output for each class."""
    dropout: float = 0.5
    """Share of the last hidden layer's outputs that a training step leaves out."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made, from JSON too."""
        sizes = {name: tuple(values[name]) for name in ("channels", "kernels", "hidden")}
        return cls(**{**values, **sizes})


class Answer(NamedTuple):
    """What a network without capsules says of a batch of images."""

    lengths: Tensor
    """(N, K): a score of each class, in the place of a capsule's length; the largest wins."""


class Baseline(nn.Module):
    """Convolutions and fully connected layers with ReLU, and a linear output for each class."""

    def __init__(self, config: BaselineConfig, *, image_size: int, num_classes: int) -> None:
        super().__init__()
        inputs, layers, cells = 1, [], image_size
        for channels, kernel in zip(config.channels, config.kernels, strict=True):
            layers += [nn.Conv2d(inputs, channels, kernel, padding=kernel // 2), nn.ReLU()]
            inputs = channels
            if config.pooling:
                layers.append(nn.MaxPool2d(2))
                cells //= 2
        layers.append(nn.Flatten())
        inputs *= cells**2
        for size in config.hidden:
            layers += [nn.Linear(inputs, size), nn.ReLU()]
            inputs = size
        self.features = nn.Sequential(*layers)
        self.classes = nn.Linear(inputs, num_classes)

    def forward(self, images: Tensor) -> Answer:
        """Images (N, 1, H, W) in [0, 1], light strokes on dark."""
        return Answer(self.logits(images))

    def logits(self, images: Tensor, kept: Tensor | float = 1.0) -> Tensor:
        """Scores (N, K) of images (N, 1, H, W).

        Args:
            kept: factors (N, F) on the last hidden layer, zero where an output is left out.
        """
        scores: Tensor = self.classes(self.features(images) * kept)
        return scores.float()
