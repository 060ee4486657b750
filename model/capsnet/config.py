"""All sizes of a capsule network in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

RoutingGradient = Literal["all", "last"]
Initialisation = Literal["fan-in", "truncated-normal"]
_CHOICES = {
    "routing_gradient": get_args(RoutingGradient),
    "initialisation": get_args(Initialisation),
}


@dataclass(frozen=True)
class CapsNetConfig:
    """Sizes and choices of one network; the defaults are the paper's MNIST network.

    Lengths are pixels, `*_dim` are the sizes of one capsule's vector.

    Raises:
        ValueError: a size is not positive, or the kernels do not fit the image.
    """

    image_size: int = 28
    conv_channels: int = 256
    conv_kernel: int = 9
    conv_stride: int = 1
    primary_types: int = 32
    primary_dim: int = 8
    primary_kernel: int = 9
    primary_stride: int = 2
    num_classes: int = 10
    class_dim: int = 16
    routing_iterations: int = 3
    routing_gradient: RoutingGradient = "all"
    """Whether the gradient flows through every routing iteration or the last one alone."""
    class_bias: bool = False
    """A learned bias added to each class capsule before its squash (the paper's code has one)."""
    primary_relu: bool = False
    """ReLU before the primary squash, as several public implementations have it."""
    primary_scale: float = 1.0
    """Factor on the primary pre-activations (the paper's code divides by 32)."""
    initialisation: Initialisation = "fan-in"
    """`truncated-normal` is the paper's code: sigma 0.1 (0.05 in the first layer), biases 0.1."""
    decoder_hidden: tuple[int, int] = (512, 1024)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            sizes = value if isinstance(value, tuple) else (value,)
            for size in sizes:
                if isinstance(size, (int, float)) and not isinstance(size, bool) and not size > 0:
                    raise ValueError(f"{field.name} must be positive, got {value!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}")
        if self.conv_size < self.primary_kernel:
            raise ValueError(
                f"an image of {self.image_size} px is too small for kernels of "
                f"{self.conv_kernel} and {self.primary_kernel} px"
            )

    @property
    def conv_size(self) -> int:
        """Height and width of the first layer's feature map, in cells."""
        return (self.image_size - self.conv_kernel) // self.conv_stride + 1

    @property
    def grid_size(self) -> int:
        """Height and width of the grid of primary capsules, in cells."""
        return (self.conv_size - self.primary_kernel) // self.primary_stride + 1

    @property
    def num_primary(self) -> int:
        """Number of primary capsules, I: types x grid x grid (1,152 in the paper)."""
        return self.primary_types * self.grid_size**2

    @property
    def primary_field_px(self) -> int:
        """Height and width of what a primary capsule sees, in pixels."""
        return self.conv_kernel + self.conv_stride * (self.primary_kernel - 1)

    @property
    def primary_stride_px(self) -> int:
        """Pixels from one primary capsule's field to the next one's."""
        return self.conv_stride * self.primary_stride

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or a value out of range.
        """
        unknown = values.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown network settings: {', '.join(sorted(unknown))}")
        hidden = values.get("decoder_hidden", cls.decoder_hidden)
        return cls(**{**values, "decoder_hidden": tuple(hidden)})
