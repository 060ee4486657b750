"""The base of every family of capsule networks: its sizes and its methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from pydantic import ConfigDict
from torch import Tensor, nn

from model.bundle import Layer
from model.outputs import Encoding, Trace


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes that every family has; each family adds its own. Images are measured in pixels.

    Raises:
        ValueError: a size is not positive, or the layers do not fit the image.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False
    )
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """The settings that may be zero, because a family checks them itself."""
    has_logits: ClassVar[bool] = False
    """Whether the network has `logits`, so that cross-entropy can train it."""

    channels: int = 1
    """The number of an image's channels: 1 for grey, 3 for colour."""
    height: int = 28
    width: int = 28
    num_classes: int = 10
    class_dim: int = 16
    """The size of a class capsule's pose, D."""
    decoder_hidden: tuple[int, ...] = (512, 1024)
    """The sizes of the decoder's hidden layers: two, or one before up-convolutions."""
    decoder_channels: tuple[int, ...] = ()
    """The channels of a decoder of up-convolutions: those of its coarse grid, then those of each
    stage, which doubles height and width. Empty for the paper's fully connected decoder."""
    decoder_doublings: int = 0
    """How often those stages' image is doubled by linear interpolation, which is much faster than a
    stage: large images are blurred in any case."""

    def __post_init__(self) -> None:
        hidden = 1 if self.decoder_channels else 2
        if len(self.decoder_hidden) != hidden:
            raise ValueError(
                "decoder_hidden has two sizes, or one where decoder_channels are given; got "
                f"{list(self.decoder_hidden)}"
            )
        if self.decoder_doublings < 0 or (self.decoder_doublings and not self.decoder_channels):
            raise ValueError(
                "decoder_doublings is at least 0, and 0 without decoder_channels; got "
                f"{self.decoder_doublings}"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("stem", "decoder_doublings", *self.may_be_zero):
                continue  # `geometry` checks stems
            if not all(size > 0 for size in _numbers(value)):
                raise ValueError(f"{field.name} must be positive, got {value!r}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of one image, (C, H, W)."""
        return (self.channels, self.height, self.width)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON-ready values."""
        return asdict(self)


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in a setting, those of its convolutions too."""
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


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
