"""Convolution with few multiplications: Winograd's minimal filtering, extended to strides.

A strided filter of r taps is split into `stride` filters of every stride-th tap. Each gives m
outputs from m + taps - 1 products by Toom and Cook's interpolation (Lavin and Gray, "Fast
algorithms for convolutional neural networks", 2015). The products of all of them share one set of
matrices, so that in one dimension

    y = A ((G w) * (B x)),  with one product for each input the tile reads.

In two dimensions that nests. The paper's 9x9 kernel of stride 2 takes 169 products for nine outputs
instead of 729, summed over channels by matrix products, which is all that is left to compute.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_POINTS = (0, 1, -1, 1 / 2, -2, -1 / 2, 3, 3 / 4)
"""The points of interpolation. Of the sets of points that were tried, this one has the least
rounding error."""
_MAX_TILE = 5
"""Outputs; beyond it rounding errors grow faster than the gain."""

Matrix = NDArray[np.float64]


def minimal_filtering(outputs: int, taps: int, stride: int) -> tuple[Matrix, Matrix, Matrix]:
    """The matrices A (m, P), G (P, r) and B (P, P) of one dimension, for m outputs and r taps.

    A tile of m outputs reads P = (m - 1) * stride + r inputs.
    """
    inputs = (outputs - 1) * stride + taps
    output_parts, kernel_parts, input_parts = [], [], []
    for phase in range(stride):
        part_taps = len(range(phase, taps, stride))
        products = outputs + part_taps - 1
        kernel_part, input_part = np.zeros((products, taps)), np.zeros((products, inputs))
        kernel_part[:, phase::stride] = _powers(products, part_taps)
        input_part[:, phase::stride] = np.linalg.inv(_powers(products, products)).T
        output_parts.append(_powers(products, outputs).T)
        kernel_parts.append(kernel_part)
        input_parts.append(input_part)
    return np.hstack(output_parts), np.vstack(kernel_parts), np.vstack(input_parts)


def tile_size(outputs: int, taps: int, stride: int) -> int | None:
    """The outputs of a tile for which a line of `outputs` takes the fewest products.

    None where taps leave gaps, or there are not enough points to interpolate at.
    """
    if taps < stride:
        return None
    most = min(_MAX_TILE, outputs, len(_POINTS) + 2 - math.ceil(taps / stride))
    return min(
        range(1, most + 1),
        key=lambda size: math.ceil(outputs / size) * ((size - 1) * stride + taps),
        default=None,
    )


class WinogradConv2d(nn.Conv2d):
    """`nn.Conv2d` without padding for images of one size, with fewer products on a CPU.

    Weights, results and gradients are those of `nn.Conv2d`, except for rounding. On a GPU, and in
    16-bit arithmetic, it computes as `nn.Conv2d` does.

    Args:
        size: height and width of the images; only square ones need fewer products.
    """

    input_matrix: Tensor
    """The matrices B of T tiles, placed where each tile lies, (T * P, size)."""
    kernel_matrix: Tensor
    """The matrix G for both dimensions, (r * r, P * P)."""
    output_matrix: Tensor
    """The matrix A, (m, P)."""

    def __init__(
        self, channels: int, filters: int, kernel: int, stride: int, *, size: tuple[int, int]
    ) -> None:
        super().__init__(channels, filters, kernel, stride)
        height, width = size
        self.outputs = (height - kernel) // stride + 1
        tile = tile_size(self.outputs, kernel, stride) if height == width else None
        self.direct = tile is None
        """Whether to compute as `nn.Conv2d` does."""
        if tile is None:
            return
        self.tiles = math.ceil(self.outputs / tile)
        output_matrix, kernel_matrix, input_matrix = minimal_filtering(tile, kernel, stride)
        products = len(input_matrix)
        placed = np.zeros((self.tiles, products, height + products))
        for index in range(self.tiles):
            start = index * tile * stride
            placed[index, :, start : start + products] = input_matrix
        lines = placed[:, :, :height].reshape(-1, height)  # what a tile reads past the edge is zero
        for name, matrix in (
            ("output_matrix", output_matrix),
            ("kernel_matrix", np.kron(kernel_matrix, kernel_matrix).T),
            ("input_matrix", lines),
        ):
            self.register_buffer(name, torch.from_numpy(matrix).float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Map (N, C, size, size) to (N, filters, outputs, outputs)."""
        if self.direct or images.is_cuda or images.dtype.itemsize < 4:
            return super().forward(images)
        products = torch.bmm(self._transform_images(images), self._transform_kernels())
        maps = self._transform_products(products)
        assert self.bias is not None
        return maps[:, :, : self.outputs, : self.outputs] + self.bias[:, None, None]

    def _transform_images(self, images: Tensor) -> Tensor:
        """B x B^T of every tile: (P * P, N * T * T, C)."""
        size, channels = images.shape[2], images.shape[1]
        matrix, tiles, products = self.input_matrix, self.tiles, self.output_matrix.shape[1]
        rows = torch.matmul(matrix, images.permute(0, 2, 3, 1).reshape(-1, size, size * channels))
        both = torch.matmul(matrix, rows.reshape(-1, size, channels))
        split = both.reshape(-1, tiles, products, tiles, products, channels)
        return split.permute(2, 4, 0, 1, 3, 5).reshape(products**2, -1, channels)

    def _transform_kernels(self) -> Tensor:
        """G w G^T of every kernel: (P * P, C, filters)."""
        kernels = self.weight.reshape(self.out_channels * self.in_channels, -1)
        both = torch.matmul(kernels, self.kernel_matrix).T.contiguous()
        return both.reshape(-1, self.out_channels, self.in_channels).transpose(1, 2)

    def _transform_products(self, products: Tensor) -> Tensor:
        """A p A^T of every tile, put together: (N, filters, T * m, T * m)."""
        size, count = self.output_matrix.shape
        tiles, filters = self.tiles, self.out_channels
        rows = torch.matmul(self.output_matrix, products.reshape(count, -1))
        both = torch.matmul(self.output_matrix, rows.reshape(size, count, -1))
        split = both.reshape(size, size, -1, tiles, tiles, filters)
        return split.permute(2, 5, 3, 0, 4, 1).reshape(-1, filters, tiles * size, tiles * size)


def _powers(points: int, degree: int) -> Matrix:
    """(points, degree): powers of the first points; the last stands for infinity."""
    finite = [[point**power for power in range(degree)] for point in _POINTS[: points - 1]]
    return np.array([*finite, [0.0] * (degree - 1) + [1.0]])
