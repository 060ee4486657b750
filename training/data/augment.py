"""Endless, seeded streams of augmented training batches, made on the training device.

Affine and elastic distortion as in Simard, Steinkraus and Platt, "Best Practices for Convolutional
Neural Networks Applied to Visual Document Analysis" (2003). The elastic one moves the nodes of a
coarse net, each at random, and what lies between them smoothly (Ronneberger, Fischer and Brox,
"U-Net", 2015). Erasing as in Zhong et al., "Random Erasing Data Augmentation" (2020), in black.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from model.preprocess import WHITE
from training.data.examples import Examples
from training.data.random_rows import RandomRows

Pad = Literal["zero", "reflect"]
"""What moves in at an image's edges: black, or the image mirrored there."""

NODES = 5
"""Of the elastic net, down and across; the outermost lie in the corners."""
NUMBERS = 4 + 2 * NODES * NODES
"""Random numbers that a distortion needs: turn, height, width and shear, then the nodes' moves."""
STEPS = 1000
"""These random numbers are whole, from -STEPS to STEPS."""
_TURN = math.radians(20)
_SCALE = 0.2
_SHEAR = 0.2


class Distortion(NamedTuple):
    """How far images are distorted, each way. Everything is drawn uniformly."""

    affine: float = 0.0
    """As a share of affNIST's ranges: turned by 20 degrees, height and width each changed by a
    fifth, sheared by 0.2 of the height."""
    elastic_px: float = 0.0
    """By how many pixels a node of the net moves at most, down and across."""


NOT_DISTORTED = Distortion()


class Batch(NamedTuple):
    """One step's worth of examples."""

    images: Tensor
    """(B, C, H, W) float32 in [0, 1]."""
    labels: Tensor
    """(B,) int64."""


class BatchStream:
    """Every example once an epoch, in an order and augmented as only the seed decides.

    Batches are cut from the concatenated epochs, so all have the same size and no example is
    left out. Batch `step` is the same whether or not the run was interrupted before it.

    Images are mirrored, distorted, moved and partly erased, in this order.

    Args:
        shift_px: images move by a whole number of pixels up to this, each way.
        flip: whether half of them are mirrored left to right.
        distortion: how far they are distorted.
        erase_px: the largest side of the square that is made black, anywhere in an image; its
            side is uniform from none.
        pad: what moves in at the edges.
        device: where the examples live and the batches are made.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        batch_size: int,
        shift_px: int,
        seed: int,
        device: torch.device,
        flip: bool = False,
        distortion: Distortion = NOT_DISTORTED,
        erase_px: int = 0,
        pad: Pad = "zero",
    ) -> None:
        self._images = torch.tensor(examples.images, device=device)
        self._labels = torch.tensor(examples.labels, device=device)
        self._batch_size = batch_size
        self._shift_px = shift_px
        self._flip = flip
        self._distortion = distortion
        self._erase_px = erase_px
        self._pad: Pad = pad
        self._seed = seed
        self._random = RandomRows(self._draw, size=len(self), device=device)

    def __len__(self) -> int:
        """Number of examples in an epoch."""
        return len(self._labels)

    def batch(self, step: int) -> Batch:
        """The batch of this step, counted from zero."""
        return self.make(self.rows(step))

    def rows(self, step: int) -> Tensor:
        """What decides the batch of this step, a row (R,) for each image.

        Example, shift down and right, mirrored or not; then, where images are distorted, how, and
        where they are erased, how large and where.
        """
        return self._random.rows(step * self._batch_size, self._batch_size)

    def make(self, rows: Tensor) -> Batch:
        """The images and labels of some rows."""
        chosen = rows[:, 0]
        images = self._images[chosen]
        if self._flip:
            images = torch.where(rows[:, 3, None, None, None] == 1, images.flip(3), images)
        if self._distortion != NOT_DISTORTED:
            images = distort(images.float(), rows[:, 4 : 4 + NUMBERS], self._distortion, self._pad)
        images = shift(images, rows[:, 1:3], self._shift_px, self._pad)
        if self._erase_px:
            images = erase(images, rows[:, -3:])
        return Batch(images.float() / WHITE, self._labels[chosen])

    def _draw(self, epoch: int) -> Tensor:
        """The rows (N, R) of an epoch."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        count, height, width = len(self), *self._images.shape[2:]

        def integers(low: int, high: int, columns: int = 1) -> Tensor:
            return torch.randint(low, high, (count, columns), generator=generator)

        order = torch.randperm(count, generator=generator)
        columns = [
            order[:, None],
            integers(-self._shift_px, self._shift_px + 1, 2),
            integers(0, 2),
        ]
        if self._distortion != NOT_DISTORTED:
            columns.append(integers(-STEPS, STEPS + 1, NUMBERS))
        if self._erase_px:
            columns += [integers(0, self._erase_px + 1), integers(0, height), integers(0, width)]
        return torch.cat(columns, dim=1)


def shift(images: Tensor, shifts: Tensor, reach: int, pad: Pad = "zero") -> Tensor:
    """Move each image down and right by its own whole number of pixels.

    Args:
        images: (B, C, H, W).
        shifts: (B, 2) int64, (down, right), each within [-reach, reach].
        reach: to reflect, less than height and width.

    Returns:
        (B, C, H, W), the same type.
    """
    if reach == 0:
        return images
    count, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device) - shifts[:, :1]  # (B, H)
    columns = torch.arange(width, device=images.device) - shifts[:, 1:]  # (B, W)
    if pad == "reflect":
        rows, columns = _reflect(rows, height), _reflect(columns, width)
    else:
        images = functional.pad(images, (reach, reach, reach, reach))
        rows, columns = rows + reach, columns + reach
    places = rows[:, :, None] * images.shape[3] + columns[:, None]  # (B, H, W)
    index = places.view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, index).view(count, channels, height, width)


def _reflect(places: Tensor, size: int) -> Tensor:
    """Places up to `size - 1` beyond the edges, mirrored at the outermost pixels."""
    return (size - 1) - ((size - 1) - places.abs()).abs()


def erase(images: Tensor, squares: Tensor) -> Tensor:
    """Make a square of each image black.

    Args:
        images: (B, C, H, W).
        squares: (B, 3) int64: side, and the place (down, right) of the middle; what lies outside
            the image is left out.

    Returns:
        (B, C, H, W), the same type.
    """
    side = squares[:, :1]
    first = squares[:, 1:] - side // 2  # (B, 2)
    inside = []
    for axis in (0, 1):
        places = torch.arange(images.shape[2 + axis], device=images.device)
        start = first[:, axis, None]
        inside.append((places >= start) & (places < start + side))
    rows, columns = inside
    return images.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], 0)


def distort(images: Tensor, numbers: Tensor, distortion: Distortion, pad: Pad = "zero") -> Tensor:
    """Distort each image by its own numbers.

    Args:
        images: (B, C, H, W) float32.
        numbers: (B, NUMBERS) int64, each within [-STEPS, STEPS].

    Returns:
        (B, C, H, W) float32, each pixel interpolated between four.
    """
    count, channels, height, width = images.shape
    shares = numbers.float() / STEPS
    right, down = shares[:, 4:].view(count, 2, NODES, NODES).unbind(1)
    reach = 2 * distortion.elastic_px
    nodes = torch.stack((right * (reach / width), down * (reach / height)), dim=1)
    moves = functional.interpolate(nodes, (height, width), mode="bicubic", align_corners=True)
    matrices = _matrices(shares[:, :4] * distortion.affine, height / width)
    places = functional.affine_grid(
        matrices, [count, channels, height, width], align_corners=False
    )  # (B, H, W, 2): right and down, from -1 to 1 between the outer edges
    places = places + moves.permute(0, 2, 3, 1)
    padding = "reflection" if pad == "reflect" else "zeros"
    return functional.grid_sample(images, places, padding_mode=padding, align_corners=False)


def _matrices(shares: Tensor, aspect: float) -> Tensor:
    """Where places (right, down) of images come from that are scaled, then sheared, then turned.

    Args:
        shares: (B, 4): of the range of turn, height, width and shear.
        aspect: the images' height, divided by their width.

    Returns:
        (B, 2, 3), in halves of width and height.
    """
    turn, height, width, shear = shares.unbind(1)
    cosine, sine = (turn * _TURN).cos(), (turn * _TURN).sin()
    shear, width, height = shear * _SHEAR, 1 + width * _SCALE, 1 + height * _SCALE
    nothing = torch.zeros_like(turn)
    across = (sine - shear * cosine) / width * aspect
    right = torch.stack(((cosine + shear * sine) / width, across, nothing))
    down = torch.stack((-sine / height / aspect, cosine / height, nothing))
    return torch.stack((right, down)).permute(2, 0, 1)
