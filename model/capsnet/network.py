"""The base of every family of capsule networks: its sizes and its methods."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet.routing import Routing, Votes
from model.capsnet.squash import length
from model.outputs import Encoding, Trace

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""The configuration of the dataclass of a network's sizes: all are checked by their annotations."""
Size = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class NetworkConfig:
    """Sizes that every family has; each family adds its own. Images are measured in pixels.

    Raises:
        ValueError: a size is not positive, or the layers do not fit the image.
    """

    has_logits: ClassVar[bool] = False
    """Whether the network has `logits`, so that cross-entropy can train it."""

    channels: Size = 1
    """The number of an image's channels: 1 for grey, 3 for colour."""
    height: Size = 28
    width: Size = 28
    num_classes: Size = 10
    class_dim: Size = 16
    """The size of a class capsule's pose, D."""
    decoder_hidden: tuple[Size, ...] = (512, 1024)
    """The sizes of the decoder's hidden layers: two, or one before up-convolutions."""
    decoder_channels: tuple[Size, ...] = ()
    """The channels of a decoder of up-convolutions: those of its coarse grid, then those of each
    stage, which doubles height and width. Empty for the paper's fully connected decoder."""
    decoder_doublings: Annotated[int, Field(ge=0)] = 0
    """How often those stages' image is doubled by linear interpolation, which is much faster than a
    stage: large images are blurred in any case."""

    def __post_init__(self) -> None:
        hidden = 1 if self.decoder_channels else 2
        if len(self.decoder_hidden) != hidden:
            raise ValueError(
                "decoder_hidden has two sizes, or one where decoder_channels are given; got "
                f"{list(self.decoder_hidden)}"
            )
        if self.decoder_doublings and not self.decoder_channels:
            raise ValueError(
                f"decoder_doublings is 0 without decoder_channels; got {self.decoder_doublings}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of one image, (C, H, W)."""
        return (self.channels, self.height, self.width)


class Network(nn.Module):
    """A network of any family. The family says whether it has `decode` and `trace`."""

    config: NetworkConfig
    decoder: nn.Module

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers whose input is routed; the last one feeds the class capsules."""
        return ()

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        raise NotImplementedError

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits (N, K) of images (N, C, H, W) in [0, 1]."""
        raise NotImplementedError

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,) as images (M, C, H, W) in [0, 1]."""
        images: Tensor = self.decoder(poses, classes)
        return images

    def trace(self, images: Tensor) -> Trace[Tensor]:
        """Encode images (N, C, H, W) and keep the trace of routing."""
        raise NotImplementedError

    def encoders(self) -> dict[str, nn.Module]:
        """Return encoders to export, by role: `encoder`, and others that are faster somewhere."""
        return {"encoder": self}

    def _check(self, images: Tensor) -> None:
        """Refuse images of another shape.

        Raises:
            ValueError: they are not (N, C, H, W).
        """
        if tuple(images.shape[1:]) != self.config.image_shape:
            expected = ", ".join(str(size) for size in self.config.image_shape)
            raise ValueError(f"images must be (N, {expected}), not {tuple(images.shape)}")


class RoutedNetwork(Network):
    """Primary capsules that vote, and one layer of routing to class capsules."""

    votes: Votes
    routing: Routing

    @property
    def routing_bias(self) -> Tensor | None:
        """What routing adds, if it adds a learned bias."""
        return None

    def primary_capsules(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1] to capsules (N, I, their size)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        votes = self.votes(self.primary_capsules(images))
        with torch.autocast(votes.device.type, enabled=False):
            poses = self.routing(votes, self.routing_bias)
            return Encoding(length(poses), poses)

    def trace(self, images: Tensor) -> Trace[Tensor]:
        """Encode images (N, C, H, W) in [0, 1], and keep every iteration of routing."""
        primary = self.primary_capsules(images)
        votes = self.votes(primary)
        return Trace(self.routing.trace(votes, length(primary), self.routing_bias))
