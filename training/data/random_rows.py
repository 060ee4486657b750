"""Random numbers for training without end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class RandomRows:
    """Rows of random numbers, epoch after epoch, of which any slice can be had.

    A slice is the same whether or not those before it were taken.

    Args:
        draw: the rows (size, R) of an epoch, by its number, counted from zero.
        size: rows in an epoch.
        device: where the rows are wanted.
    """

    def __init__(self, draw: Callable[[int], Tensor], *, size: int, device: torch.device) -> None:
        self._draw = draw
        self._size = size
        self._device = device
        self._epochs: dict[int, Tensor] = {}

    def rows(self, start: int, count: int) -> Tensor:
        """Rows (count, R) of the concatenated epochs."""
        epoch, offset = divmod(start, self._size)
        parts = []
        while count > 0:
            parts.append(self._epoch(epoch)[offset : offset + count])
            count -= len(parts[-1])
            epoch, offset = epoch + 1, 0
        return torch.cat(parts)

    def _epoch(self, number: int) -> Tensor:
        """The rows of an epoch; the two latest are kept."""
        if number not in self._epochs:
            self._epochs[number] = self._draw(number).to(self._device)
            self._epochs.pop(number - 2, None)
        return self._epochs[number]
