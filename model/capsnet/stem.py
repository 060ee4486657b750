"""The convolutions before any capsules: the paper's one, or several with batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn


class Conv(NamedTuple):
    """One convolution without padding, and what follows it."""

    channels: int
    kernel: int
    stride: int = 1
    pool: int = 1
    """Side of the squares that are averaged after it."""


class Geometry(NamedTuple):
    """The grid of cells that convolutions make of an image."""

    rows: int
    columns: int
    field_px: int
    """Height and width of what one cell sees."""
    stride_px: int
    """From one cell's field to the next one's."""

    def then(self, kernel: int, stride: int) -> Geometry:
        """The grid after one more window without padding.

        Raises:
            ValueError: the window is larger than the grid.
        """
        rows, columns = ((size - kernel) // stride + 1 for size in self[:2])
        if min(self.rows, self.columns) < kernel:
            raise ValueError(
                f"a window of {kernel} does not fit a grid of {self.rows}x{self.columns} cells: "
                "the image is too small for these kernels and strides"
            )
        field = self.field_px + (kernel - 1) * self.stride_px
        return Geometry(rows, columns, field, self.stride_px * stride)


def geometry(height: int, width: int, convs: Sequence[Conv]) -> Geometry:
    """The grid that a stem makes of an image of so many pixels.

    Raises:
        ValueError: the image is too small.
    """
    grid = Geometry(height, width, field_px=1, stride_px=1)
    for conv in convs:
        grid = grid.then(conv.kernel, conv.stride)
        if conv.pool > 1:
            grid = grid.then(conv.pool, conv.pool)
    return grid


class Stem(nn.Sequential):
    """Convolutions with ReLU, then batch normalisation where it is asked for (Mazzia 2021)."""

    def __init__(self, channels: int, convs: Sequence[Conv], *, batch_norm: bool = False) -> None:
        layers: list[nn.Module] = []
        for conv in convs:
            layers += [nn.Conv2d(channels, conv.channels, conv.kernel, conv.stride), nn.ReLU()]
            if batch_norm:
                layers.append(nn.BatchNorm2d(conv.channels))
            if conv.pool > 1:
                layers.append(nn.AvgPool2d(conv.pool))
            channels = conv.channels
        super().__init__(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) images to (N, channels, rows, columns) features."""
        first = self[0]
        assert isinstance(first, nn.Conv2d)
        features = images.to(first.weight.dtype)
        for layer in self:
            features = layer(features)
        return features


def initialise(stem: Stem) -> None:
    """Sample the weights of every convolution as He et al. (2015) do for ReLU; biases are zero."""
    for layer in stem:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
