"""MultiMNIST: two digits of different classes, each shifted, added up in one image (section 6).

Pairs are made of images of one channel. All their random numbers are 64-bit outputs of PCG64, which
numpy keeps the same for good, taken modulo their range; all pixels are integers. So the same seed
gives the same pairs everywhere.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.preprocess import WHITE
from training.data.augment import Augmentation, Batch, RowStream, shift
from training.data.datasets import Examples
from training.data.source import DatasetError

EPOCH_PAIRS = 100_000
"""The pairs of an epoch.

They hardly ever recur, so this decides only how often a run is validated.
"""
VALIDATION_PAIRS = 5000
VALIDATION_SEED = 1
PUBLISHED_PAIRS = 10_000
TEST_PAIRS = 1_000_000
"""The first PUBLISHED_PAIRS of them are those whose digests are published."""
TEST_SEED = 2017
TEST_DIGESTS = {
    4: "310569bb4093d8f27b75fb428967c520338a59a86e00af16cfef76de90aac7bc",
    6: "3ae46e29dfaff1a9999e24087dc7ab68a5bd60a4854645caaf14d49d2077d23a",
}
"""The SHA-256 of images, object images and labels of the published pairs, PUBLISHED_PX, by shift.
"""
PUBLISHED_PX = 36
"""The height and width of the published pairs."""


def draw_pairs(
    labels: NDArray[np.int64], count: int, *seed: int, shift_px: int
) -> NDArray[np.int64]:
    """Draw pairs of digits of different classes, and their shifts, all uniformly.

    Fewer draws of the same seed are the first of these.

    Args:
        labels: (N,) of the digits to choose from.
        shift_px: digits move by up to this many pixels, each way.

    Returns:
        (count, 6): two digits by index, and the shift of each, down and right.

    Raises:
        ValueError: all digits are of one class.
    """
    by_class, counts = np.argsort(labels, kind="stable"), np.bincount(labels)
    if counts.max() == len(labels):
        raise ValueError("pairs need digits of at least two classes")
    starts = counts.cumsum() - counts
    numbers = np.random.PCG64(seed).random_raw(6 * count).reshape(count, 6)
    first = (numbers[:, 0] % len(labels)).astype(np.int64)
    own_start, own_count = starts[labels[first]], counts[labels[first]]
    others = (len(labels) - own_count).astype(np.uint64)
    rank = (numbers[:, 1] % others).astype(np.int64)
    second = by_class[np.where(rank < own_start, rank, rank + own_count)]
    moves = (numbers[:, 2:] % (2 * shift_px + 1)).astype(np.int64) - shift_px
    return np.column_stack((first, second, moves))


class PairStream(RowStream):
    """An endless stream of training pairs. The seed and the step alone decide a batch.

    Args:
        size_px: height and width of a pair.
    """

    def __init__(
        self,
        examples: Examples,
        recipe: Augmentation,
        *,
        size_px: int,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(examples, recipe, size=EPOCH_PAIRS, seed=seed, device=device)
        self._size_px = size_px
        self._digits = examples.labels

    def make(self, rows: Tensor) -> Batch:
        """Turn rows (B, R) into pairs, whose targets are their digits, each alone."""
        digits = self._images[rows[:, :2].flatten()]
        size, reach = self._size_px, self._recipe.shift_px
        object_images = lay_out(digits, rows[:, 2:6], size=size, reach=reach)
        images = overlay(object_images)
        return Batch(
            images.float() / WHITE, object_images.float() / WHITE, self._labels[rows[:, :2]]
        )

    def draw(self, epoch: int) -> Tensor:
        """Sample rows of six numbers, as `draw_pairs` gives them."""
        seed, shift_px = (self._seed, epoch), self._recipe.shift_px
        return torch.from_numpy(draw_pairs(self._digits, EPOCH_PAIRS, *seed, shift_px=shift_px))


def fixed_pairs(examples: Examples, count: int, *, size: int, shift_px: int, seed: int) -> Examples:
    """The first `count` pairs of a seed, bit for bit the same everywhere.

    Args:
        size: height and width of the pairs' images, in pixels.
        shift_px: digits move by up to this many pixels, each way.
    """
    draws = draw_pairs(examples.labels, count, seed, shift_px=shift_px)
    return make_pairs(examples, draws, size=size, shift_px=shift_px)


def make_pairs(
    examples: Examples, draws: NDArray[np.int64], *, size: int, shift_px: int
) -> Examples:
    """Make the pairs that `draw_pairs` gave, to split a set too large for memory."""
    digits = torch.from_numpy(examples.images[draws[:, :2].ravel()])
    object_images = lay_out(digits, torch.from_numpy(draws[:, 2:]), size=size, reach=shift_px)
    images, labels = overlay(object_images).numpy(), examples.labels[draws[:, :2]]
    return Examples(images, labels, object_images=object_images.numpy())


def validation_pairs(digits: Examples, *, size: int, shift_px: int) -> Examples:
    """The fixed pairs of training digits on which choices are made."""
    return fixed_pairs(digits, VALIDATION_PAIRS, size=size, shift_px=shift_px, seed=VALIDATION_SEED)


def published_pairs(digits: Examples, *, size: int, shift_px: int) -> Examples:
    """The fixed pairs of test digits on which networks are compared.

    A network of another size than PUBLISHED_PX gets the same digits with the same shifts, in
    squares of its own size.

    Raises:
        DatasetError: they are not the published ones, bit for bit.
    """

    def make(size: int) -> Examples:
        return fixed_pairs(digits, PUBLISHED_PAIRS, size=size, shift_px=shift_px, seed=TEST_SEED)

    pairs = make(PUBLISHED_PX)
    if digest(pairs) != TEST_DIGESTS[shift_px]:
        raise DatasetError(f"the test pairs with shift {shift_px} are not the published ones")
    return pairs if size == PUBLISHED_PX else make(size)


def digest(pairs: Examples) -> str:
    """The SHA-256 of images, object images and labels of pairs, each number as a byte."""
    arrays = (pairs.images, pairs.object_images, pairs.labels)
    content = b"".join(np.asarray(array, np.uint8).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()


def lay_out(digits: Tensor, shifts: Tensor, *, size: int, reach: int) -> Tensor:
    """Draw each digit of each pair alone, shifted from the middle of an empty square.

    Args:
        digits: (2 B, 1, h, w) uint8, a pair's two after one another.
        shifts: (B, 4) int64: how far down and right the first moves, and the second.
        size: of the square, in pixels.
        reach: the largest shift; what it moves off the square is lost.

    Returns:
        (B, 2, size, size) uint8.

    Raises:
        ValueError: a digit has no middle place in the square.
    """
    margin, odd = divmod(size - digits.shape[-1], 2)
    if margin < 0 or odd:
        raise ValueError(f"digits of {digits.shape[-1]} px have no middle place in {size} px")
    padded = torch.nn.functional.pad(digits, (margin,) * 4)
    return shift(padded, shifts.reshape(-1, 2), reach).reshape(-1, 2, size, size)


def overlay(object_images: Tensor) -> Tensor:
    """Add up both digits, min(a + b, 255): (B, 2, H, W) to (B, 1, H, W), uint8."""
    both = object_images.sum(dim=1, keepdim=True, dtype=torch.int16)
    return both.clamp_max(WHITE).to(torch.uint8)
