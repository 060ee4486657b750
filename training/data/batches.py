"""Endless, seeded streams of training batches, made on the training device."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from model.preprocess import WHITE
from training.data.datasets import Examples
from training.data.distortion import NOT_DISTORTED, NUMBERS, STEPS, Distortion, distort


class Batch(NamedTuple):
    """One step's worth of examples."""

    images: Tensor
    """(B, 1, H, W) float32 in [0, 1]."""
    labels: Tensor
    """(B,) int64."""


class Draws:
    """Rows of random numbers, epoch after epoch, of which any slice can be had.

    A slice is the same whether or not those before it were taken.

    Args:
        draw: the rows (size, C) of an epoch, by its number, counted from zero.
        size: rows in an epoch.
        device: where the rows are wanted.
    """

    def __init__(self, draw: Callable[[int], Tensor], *, size: int, device: torch.device) -> None:
        self._draw = draw
        self._size = size
        self._device = device
        self._epochs: dict[int, Tensor] = {}

    def rows(self, start: int, count: int) -> Tensor:
        """Rows (count, C) of the concatenated epochs."""
        epoch, offset = divmod(start, self._size)
        rows = self._epoch(epoch)
        while len(rows) < offset + count:
            epoch += 1
            rows = torch.cat((rows, self._epoch(epoch)))
        return rows[offset : offset + count]

    def _epoch(self, number: int) -> Tensor:
        """The rows of an epoch; the two latest are kept."""
        if number not in self._epochs:
            self._epochs[number] = self._draw(number).to(self._device)
            self._epochs.pop(number - 2, None)
        return self._epochs[number]


class BatchStream:
    """Every example once an epoch, in an order and with shifts that only the seed decides.

    Batches are cut from the concatenated epochs, so all have the same size and no example is
    left out. Batch `step` is the same whether or not the run was interrupted before it.

    Args:
        shift_px: images move by a whole number of pixels up to this, each way; zeros move in.
        flip: whether half of them are mirrored left to right first.
        distortion: how far they are distorted next, before they move.
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
    ) -> None:
        self._images = torch.tensor(examples.images, device=device)
        self._labels = torch.tensor(examples.labels, dtype=torch.int64, device=device)
        self._batch_size = batch_size
        self._shift_px = shift_px
        self._flip = flip
        self._distortion = distortion
        self._seed = seed
        self._draws = Draws(self._draw, size=len(self), device=device)

    def __len__(self) -> int:
        """Number of examples in an epoch."""
        return len(self._labels)

    def batch(self, step: int) -> Batch:
        """The batch of this step, counted from zero."""
        return self.make(self.rows(step))

    def rows(self, step: int) -> Tensor:
        """What decides the batch of this step, a row (C,) for each image.

        Example, shift down and right, mirrored or not, and, where images are distorted, how.
        """
        return self._draws.rows(step * self._batch_size, self._batch_size)

    def make(self, rows: Tensor) -> Batch:
        """The images and labels of some rows."""
        chosen = rows[:, 0]
        images = self._images[chosen]
        if self._flip:
            images = torch.where(rows[:, 3, None, None] == 1, images.flip(2), images)
        if self._distortion != NOT_DISTORTED:
            images = distort(images.float(), rows[:, 4:], self._distortion)
        images = shift(images, rows[:, 1:3], self._shift_px)
        return Batch(images.unsqueeze(1).float() / WHITE, self._labels[chosen])

    def _draw(self, epoch: int) -> Tensor:
        """The rows (N, C) of an epoch."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        order = torch.randperm(len(self), generator=generator)
        reach = self._shift_px
        shifts = torch.randint(-reach, reach + 1, (len(self), 2), generator=generator)
        flips = torch.randint(2, (len(self), 1), generator=generator)
        columns = [order[:, None], shifts, flips]
        if self._distortion != NOT_DISTORTED:
            shape = (len(self), NUMBERS)
            columns.append(torch.randint(-STEPS, STEPS + 1, shape, generator=generator))
        return torch.cat(columns, dim=1)


def shift(images: Tensor, shifts: Tensor, reach: int) -> Tensor:
    """Move each image down and right by its own whole number of pixels, zeros moving in.

    Args:
        images: (B, H, W).
        shifts: (B, 2) int64, (down, right), each within [-reach, reach].

    Returns:
        (B, H, W), the same type.
    """
    if reach == 0:
        return images
    count, height, width = images.shape
    padded = torch.nn.functional.pad(images, (reach, reach, reach, reach))
    rows = torch.arange(height, device=images.device) + reach - shifts[:, :1]  # (B, H)
    columns = torch.arange(width, device=images.device) + reach - shifts[:, 1:]  # (B, W)
    which = torch.arange(count, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]
