"""The whole network, read from top to bottom."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from model.capsnet.config import CapsNetConfig
from model.capsnet.decoder import Decoder
from model.capsnet.layers import ClassCapsules, PrimaryCapsules
from model.capsnet.routing import RoutingTrace
from model.capsnet.squash import length


class Encoding(NamedTuple):
    """What the encoder says of a batch of images."""

    lengths: Tensor
    """(N, K): how present each class is, in [0, 1)."""
    poses: Tensor
    """(N, K, D): each class capsule."""


class RoutingView(NamedTuple):
    """How the capsules of a batch came to agree."""

    trace: RoutingTrace
    primary_lengths: Tensor
    """(N, I)."""
    votes: Tensor
    """(N, K, I, D)."""


class CapsNet(nn.Module):
    """Convolution, primary capsules, routed class capsules, decoder (paper, figures 1 and 2)."""

    def __init__(self, config: CapsNetConfig) -> None:
        super().__init__()
        self.config = config
        self.conv = nn.Conv2d(1, config.conv_channels, config.conv_kernel, config.conv_stride)
        self.primary = PrimaryCapsules(config)
        self.classes = ClassCapsules(config)
        self.decoder = Decoder(config)
        self._initialise()

    def forward(self, images: Tensor) -> Encoding:
        """Encode images (N, 1, H, W) in [0, 1], light strokes on dark."""
        poses = self.classes(self._primary(images))
        return Encoding(length(poses), poses)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Draw poses (M, D) of classes (M,) as images (M, 1, H, W)."""
        images: Tensor = self.decoder(poses, classes)
        return images

    def look_inside(self, images: Tensor) -> RoutingView:
        """Encode images (N, 1, H, W) and keep what routing did on the way."""
        primary = self._primary(images)
        votes = self.classes.votes(primary)
        return RoutingView(self.classes.trace(votes), length(primary), votes)

    def _primary(self, images: Tensor) -> Tensor:
        size = self.config.image_size
        if images.shape[1:] != (1, size, size):
            raise ValueError(f"images must be (N, 1, {size}, {size}), not {tuple(images.shape)}")
        primary: Tensor = self.primary(self.conv(images.to(self.conv.weight.dtype)).relu())
        return primary

    def _initialise(self) -> None:
        paper_code = self.config.initialisation == "truncated-normal"
        nn.init.trunc_normal_(self.classes.weight, std=0.1, a=-0.2, b=0.2)
        nn.init.xavier_uniform_(
            self.decoder.class_weight.view(-1, self.decoder.class_weight.shape[-1])
        )
        if self.classes.bias is not None:
            nn.init.constant_(self.classes.bias, 0.1)
        for conv, std in ((self.conv, 0.05), (self.primary.conv, 0.1)):
            assert conv.bias is not None
            if paper_code:
                nn.init.trunc_normal_(conv.weight, std=std, a=-2 * std, b=2 * std)
                nn.init.constant_(conv.bias, 0.1)
            else:
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                nn.init.zeros_(conv.bias)
