"""Su Jianlin, "Another new Capsule" (2018): one transformation shared by all primary capsules.

Any number of primary capsules will do. A network trained on single digits therefore takes images
of any size of at least 28x28 pixels, such as two digits side by side.
"""

from __future__ import annotations

import math

from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet.decoder import build_decoder
from model.capsnet.network import STRICT, RoutedNetwork, Size
from model.capsnet.routing import RoutingByKMeans, Votes
from model.capsnet.stem import Conv, Stem, StemConfig, StemLayer

_SUM_STD = 0.04
"""W is sampled with this over sqrt(I) as standard deviation; primary capsules are not squashed, and
about 4 long."""


@dataclass(frozen=True, config=STRICT)
class SharedConfig(StemConfig):
    """Sizes of a network with shared weights; the defaults are the source's for MNIST."""

    stem: tuple[StemLayer, ...] = (Conv(64, 3), Conv(64, 3, pool=2), Conv(128, 3), Conv(128, 3))
    routing_iterations: Size = 3


class SharedCapsNet(RoutedNetwork):
    """Four convolutions, whose cells are the primary capsules; routed class capsules; decoder."""

    config: SharedConfig

    def __init__(self, config: SharedConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem)
        self.votes = Votes(
            None,
            in_dim=config.features,
            classes=config.num_classes,
            out_dim=config.class_dim,
            std=_SUM_STD / math.sqrt(config.grid.rows * config.grid.columns),
        )
        self.routing = RoutingByKMeans(config.routing_iterations)
        self.decoder = build_decoder(config)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The class capsules are routed from the cells of the stem."""
        return (Layer("classes", self.config.routing_iterations, 1, *self.config.grid),)

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W), of any size that the convolutions fit, to a capsule a cell."""
        features: Tensor = self.stem(images)
        return features.flatten(2).transpose(1, 2).float()  # (N, rows * columns, channels)

    def encoders(self) -> dict[str, nn.Module]:
        """Return an encoder for images of the training's size, and one for those of any size."""
        return {"encoder": self, "encoder.any-size": self}
