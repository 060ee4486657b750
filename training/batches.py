"""An endless, seeded stream of shifted training batches, made on the training device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.preprocess import WHITE
from training.datasets import Examples


class Batch(NamedTuple):
    """One step's worth of examples."""

    images: Tensor
    """(B, 1, H, W) float32 in [0, 1]."""
    labels: Tensor
    """(B,) int64."""


class BatchStream:
    """Every example once an epoch, in an order and with shifts that only the seed decides.

    Batches are cut from the concatenated epochs, so all have the same size and no example is
    left out. Batch `step` is the same whether or not the run was interrupted before it.

    Args:
        shift_px: images move by a whole number of pixels up to this, each way; zeros move in.
        device: where the examples live and the batches are made.
    """

    def __init__(
        self, examples: Examples, *, batch_size: int, shift_px: int, seed: int, device: torch.device
    ) -> None:
        self._images = torch.tensor(examples.images, device=device)
        self._labels = torch.tensor(examples.labels, dtype=torch.int64, device=device)
        self._batch_size = batch_size
        self._shift_px = shift_px
        self._seed = seed
        self._device = device
        self._plans: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        """Number of examples in an epoch."""
        return len(self._labels)

    def batch(self, step: int) -> Batch:
        """The batch of this step, counted from zero."""
        start = step * self._batch_size
        epoch, offset = divmod(start, len(self))
        order, shifts = self._plan(epoch)
        end = offset + self._batch_size
        while len(order) < end:
            epoch += 1
            next_order, next_shifts = self._plan(epoch)
            order, shifts = torch.cat((order, next_order)), torch.cat((shifts, next_shifts))
        chosen = order[offset:end]
        images = shift(self._images[chosen], shifts[offset:end], self._shift_px)
        return Batch(images.unsqueeze(1).float() / WHITE, self._labels[chosen])

    def _plan(self, epoch: int) -> tuple[Tensor, Tensor]:
        """Order (N,) and shifts (N, 2) of an epoch; the two latest are kept."""
        if epoch not in self._plans:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            order = torch.randperm(len(self), generator=generator)
            reach = self._shift_px
            shifts = torch.randint(-reach, reach + 1, (len(self), 2), generator=generator)
            self._plans[epoch] = (order.to(self._device), shifts.to(self._device))
            self._plans.pop(epoch - 2, None)
        return self._plans[epoch]


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
