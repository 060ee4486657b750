"""The layers before any capsules: the paper's one convolution, or a small convolutional network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.capsnet import pretrained
from model.capsnet.network import STRICT, NetworkConfig, Size

Activation = Literal["relu", "gelu", "none"]
_RESIDUAL_SCALE = 0.5
"""The initial weight of the last batch normalisation in a residual block."""
_WHITENING_EPSILON = 5e-4
"""A constant that is added to the eigenvalues of patches, whose pixels are in [0, 1]."""


def _odd(kernel: int) -> int:
    if kernel % 2 == 0:
        raise ValueError("kernels of residual blocks are odd")
    return kernel


class Conv(NamedTuple):
    """A convolution of the stem, with its pooling and padding."""

    channels: Size
    kernel: Size
    stride: Size = 1
    pool: Size = 1
    """The side of the squares that are averaged after the convolution."""
    padding: Annotated[int, Field(ge=0)] = 0
    """The rows and columns of zeros on each side."""
    max_pool: Size = 1
    """The side of the squares whose maximum is taken, before batch normalisation."""
    activation: Activation = "relu"


class Residual(NamedTuple):
    """A residual block: x + norm(conv(relu(norm(conv(x))))), then ReLU. It keeps all sizes."""

    kind: Literal["residual"] = "residual"
    kernel: Annotated[Size, AfterValidator(_odd)] = 3


class Whiten(NamedTuple):
    """A convolution that is not trained: its outputs are uncorrelated, with equal variance.

    Its filters are the eigenvectors of patches of training images, each divided by the root of its
    eigenvalue, and their negatives: 2 kernel^2 channels for each of the images' (Jordan, "94% on
    CIFAR-10 in 3.29 Seconds on a Single GPU", 2024).
    """

    kind: Literal["whiten"] = "whiten"
    kernel: Size = 2


class Pretrained(NamedTuple):
    """A published network without its last layer, which starts from published weights.

    It is the first layer of a stem. Its input has 1 channel or 3, its output as many channels as
    the network's last features, on a grid that is 32 times as coarse as the image.
    """

    kind: Literal["pretrained"] = "pretrained"
    network: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """The share of its channels that are zero in a training step."""


def _kind_of(layer: Any) -> str:
    """`[32, 5, 2]` is a convolution; `["residual"]` and `["whiten", 2]` name themselves."""
    named = isinstance(layer, (list, tuple)) and len(layer) and isinstance(layer[0], str)
    return str(layer[0]) if named else "convolution"


StemLayer = Annotated[
    Annotated[Conv, Tag("convolution")]
    | Annotated[Residual, Tag("residual")]
    | Annotated[Whiten, Tag("whiten")]
    | Annotated[Pretrained, Tag("pretrained")],
    Discriminator(_kind_of),
]


class Geometry(NamedTuple):
    """The grid of cells that layers make of an image."""

    rows: int
    columns: int
    field_px: int
    """The height and width of a cell's receptive field."""
    stride_px: int
    """The distance between the fields of neighbouring cells."""
    offset_px: int = 0
    """The position of the first cell's field, down and right; negative where layers pad."""

    def then(self, kernel: int, stride: int, padding: int | None = 0) -> Geometry:
        """The grid after one more window; `padding=None` keeps 1 / stride of all cells.

        Raises:
            ValueError: the window is larger than the padded grid.
        """
        if padding is None:
            before, _ = pretrained.zeros_around(self.rows, kernel, stride)
            rows, columns = (math.ceil(side / stride) for side in self[:2])
        elif min(self.rows, self.columns) + 2 * padding < kernel:
            raise ValueError(
                f"a window of {kernel} does not fit a grid of {self.rows}x{self.columns} cells: "
                "the image is too small for these kernels and strides"
            )
        else:
            before = padding
            rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in self[:2])
        field = self.field_px + (kernel - 1) * self.stride_px
        offset = self.offset_px - before * self.stride_px
        return Geometry(rows, columns, field, self.stride_px * stride, offset)


def _windows(layer: StemLayer) -> Iterator[tuple[int, int, int | None]]:
    """The kernel, stride and padding of each window of a layer."""
    if isinstance(layer, Residual):
        yield from [(layer.kernel, 1, layer.kernel // 2)] * 2
    elif isinstance(layer, Whiten):
        yield layer.kernel, 1, 0
    elif isinstance(layer, Pretrained):
        yield from ((*window, None) for window in pretrained.windows())
    else:
        yield layer.kernel, layer.stride, layer.padding
        yield from ((side, side, 0) for side in (layer.max_pool, layer.pool) if side > 1)


def out_channels(channels: int, layers: Sequence[StemLayer]) -> int:
    """Return the channels of the features that a stem makes of an image's channels."""
    for layer in layers:
        if isinstance(layer, Conv):
            channels = layer.channels
        elif isinstance(layer, Whiten):
            channels *= 2 * layer.kernel**2
        elif isinstance(layer, Pretrained):
            channels = pretrained.FEATURES
    return channels


@dataclass(frozen=True, config=STRICT)
class StemConfig(NetworkConfig):
    """Sizes of a network that begins with a stem."""

    stem: tuple[StemLayer, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stem:
            raise ValueError("a stem has at least one layer")
        if any(isinstance(layer, Pretrained) for layer in self.stem[1:]):
            raise ValueError("a pretrained network is the first layer of its stem")
        if isinstance(self.stem[0], Pretrained) and self.channels not in (1, 3):
            raise ValueError(f"a pretrained stem takes 1 or 3 channels, not {self.channels}")
        _ = self.cells, self.grid  # which refuse images that are too small

    @property
    def cells(self) -> Geometry:
        """The grid of the stem's features."""
        grid = Geometry(self.height, self.width, field_px=1, stride_px=1)
        for layer in self.stem:
            for kernel, stride, padding in _windows(layer):
                grid = grid.then(kernel, stride, padding)
        return grid

    @property
    def features(self) -> int:
        """The channels of the stem's features."""
        return out_channels(self.channels, self.stem)

    @property
    def grid(self) -> Geometry:
        """The grid of the primary capsules: by default each cell of the stem has one."""
        return self.cells


class ResidualBlock(nn.Module):
    """Two convolutions whose result is added to what came in (He et al. 2015).

    Args:
        channels: of input and output.
        kernel: odd.
    """

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.second_norm = nn.BatchNorm2d(channels)
        nn.init.constant_(self.second_norm.weight, _RESIDUAL_SCALE)

    def forward(self, features: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        change = self.first_norm(self.first(features)).relu()
        changed: Tensor = features + self.second_norm(self.second(change))
        return changed.relu()


class Whitening(nn.Conv2d):
    """The layer that `Whiten` describes. `fit` sets its weights, which are not trained."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, 2 * channels * kernel**2, kernel)
        self.requires_grad_(False)

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Set the weights from images (N, C, H, W) in [0, 1]."""
        kernel = self.kernel_size[0]
        patches = images.unfold(2, kernel, 1).unfold(3, kernel, 1)  # (N, C, h, w, k, k)
        rows = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2).double()
        rows = rows - (mean := rows.mean(dim=0))
        values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
        filters = (vectors / (values + _WHITENING_EPSILON).sqrt()).T.flip(0)
        filters = torch.cat((filters, -filters))
        self.weight.copy_(filters.view_as(self.weight))
        assert self.bias is not None
        self.bias.copy_(-(filters @ mean))


class Stem(nn.Sequential):
    """The layers before the primary capsules, one after another.

    Convolutions begin as He et al. (2015) have it for ReLU, with biases of zero.

    Args:
        channels: of an image.
        batch_norm: whether each convolution has batch normalisation; residual blocks always have.
        norm_first: whether it comes before the activation, as He et al. have it, not after.
    """

    def __init__(
        self,
        channels: int,
        layers: Sequence[StemLayer],
        *,
        batch_norm: bool = False,
        norm_first: bool = False,
    ) -> None:
        modules: list[nn.Module] = []
        for layer in layers:
            if isinstance(layer, Residual):
                modules.append(ResidualBlock(channels, layer.kernel))
            elif isinstance(layer, Whiten):
                modules.append(Whitening(channels, layer.kernel))
            elif isinstance(layer, Pretrained):
                modules.append(pretrained.PretrainedNetwork(channels))
                modules += [nn.Dropout2d(layer.dropout)] * (layer.dropout > 0)
            else:
                norm = [nn.BatchNorm2d(layer.channels)] if batch_norm else []
                modules += _convolution(channels, layer, norm, norm_first=norm_first)
            channels = out_channels(channels, (layer,))
        super().__init__(*modules)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not isinstance(module, Whitening):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to features (N, channels, rows, columns)."""
        features = images.to(next(self.parameters()).dtype)
        for layer in self:
            features = layer(features)
        return features


def _convolution(
    channels: int, conv: Conv, norm: Sequence[nn.Module], *, norm_first: bool
) -> list[nn.Module]:
    modules: list[nn.Module] = [
        nn.Conv2d(channels, conv.channels, conv.kernel, conv.stride, conv.padding)
    ]
    if conv.max_pool > 1:
        modules.append(nn.MaxPool2d(conv.max_pool))
    activation: dict[Activation, list[nn.Module]] = {
        "relu": [nn.ReLU()],
        "gelu": [nn.GELU("tanh")],
        "none": [],
    }
    follow = [norm, activation[conv.activation]]
    modules += [module for part in (follow if norm_first else follow[::-1]) for module in part]
    if conv.pool > 1:
        modules.append(nn.AvgPool2d(conv.pool))
    return modules
