"""Endless, seeded streams of augmented training batches, made on the training device.

Affine and elastic distortion as in Simard, Steinkraus and Platt, "Best Practices for Convolutional
Neural Networks Applied to Visual Document Analysis" (2003). The elastic one displaces a coarse
grid of control points, each at random, and what lies between them smoothly (Ronneberger, Fischer
and Brox, "U-Net", 2015). Alternating flip as in Jordan, "94% on CIFAR-10 in 3.29 Seconds on a
Single GPU" (2024). Cutout as in DeVries and Taylor (2017), filled with the mean colour.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor
from torch.nn import functional

from model.preprocess import WHITE
from training.data.datasets import Examples

Pad = Literal["zero", "reflect"]
GRID = 5
"""The control points of the elastic distortion, down and across. The outermost lie in the corners.
"""
NUMBERS = 4 + 2 * GRID * GRID
"""The random numbers of a distortion: rotation, height, width and shear, then displacements."""
_MEAN_IMAGES = 5000
"""The mean colour that fills what is cut out is measured on this many images, or on all."""
_COPIED = 300
"""The images of each class that `moved_copies` takes, at most."""
RESOLUTION = 1000
"""These random numbers are integers from -RESOLUTION to RESOLUTION."""
_TURN = math.radians(20)
_SCALE = 0.2
_SHEAR = 0.2


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Settings that make batches of training images. A recipe adds those of learning."""

    batch_size: PositiveInt = 128
    views: NonNegativeInt = 0
    """Each image is moved, mirrored and distorted in so many ways, which repeat; 0: always anew.
    A pretrained stem then computes each view once."""
    even_classes: bool = False
    """Each class makes up the same share of an epoch, however many images it has."""
    shift_px: NonNegativeInt = 2
    """Training images are moved by up to this many pixels each way."""
    flip: bool = False
    """Half of the training images, sampled anew in each epoch, are mirrored left to right."""
    flip_alternates: bool = False
    """With `flip`, an image that is mirrored in one epoch is not in the next."""
    affine: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Training images are rotated, scaled and sheared by up to this share of affNIST's ranges: 20
    degrees, a fifth of height and width each, and a shear by 0.2 of the height."""
    elastic_px: NonNegativeFloat = 0.0
    """The largest displacement of a control point, in pixels, down and across."""
    cutout_px: NonNegativeInt = 0
    """A square of this many pixels, anywhere in a training image, gets the images' mean colour."""
    pad: Pad = "zero"
    """What fills the edges that a shift opens: black, or the mirrored image."""

    @property
    def distorts(self) -> bool:
        """Whether images are distorted."""
        return bool(self.affine or self.elastic_px)


class Batch(NamedTuple):
    """A batch of B images, each with L labels. Images and targets are float32 in [0, 1]."""

    images: Tensor
    """The images (B, C, H, W)."""
    targets: Tensor
    """The targets of reconstruction: the images before anything was cut out of them, or the object
    images (B, 2, H, W) of pairs."""
    labels: Tensor
    """The labels (B, L), int64."""


class RowStream(ABC):
    """An endless stream of batches, made on the training device (so there is no DataLoader).

    A row is the integers that fix one image: the index of its example, then its random
    augmentation. `draw` samples the rows of an epoch; `make` turns rows into images.

    Batches are cut from the concatenated epochs, so all have the same size and no row is left out.
    Batch `step` is the same whether or not the run was interrupted before it.

    Args:
        recipe: its batch size, and how it moves and distorts images.
        size: rows in an epoch.
        device: where the batches are made.
    """

    def __init__(
        self,
        examples: Examples,
        recipe: Augmentation,
        *,
        size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._images = torch.tensor(examples.images, device=device)
        self._labels = torch.tensor(examples.labels, device=device)
        self._recipe = recipe
        self.rows_per_epoch = size
        self._seed = seed
        self._epochs: dict[int, Tensor] = {}

    @abstractmethod
    def draw(self, epoch: int) -> Tensor:
        """Sample the rows (N, R) of an epoch, counted from zero, on the CPU."""

    @abstractmethod
    def make(self, rows: Tensor) -> Batch:
        """Turn rows (B, R) into images."""

    def batch(self, step: int) -> Batch:
        """The batch of this step, counted from zero."""
        return self.make(self.rows(step))

    def rows(self, step: int) -> Tensor:
        """The rows (B, R) of the batch of this step, one for each image."""
        count = self._recipe.batch_size
        epoch, offset = divmod(step * count, self.rows_per_epoch)
        parts = []
        while count > 0:
            parts.append(self._epoch(epoch)[offset : offset + count])
            count -= len(parts[-1])
            epoch, offset = epoch + 1, 0
        return torch.cat(parts)

    def _epoch(self, number: int) -> Tensor:
        """The rows of an epoch; the two latest are kept."""
        if number not in self._epochs:
            self._epochs[number] = self.draw(number).to(self._labels.device)
            self._epochs.pop(number - 2, None)
        return self._epochs[number]

    def _generator(self, epoch: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)


class BatchStream(RowStream):
    """A stream of every example once an epoch. The seed alone decides order and augmentation.

    With even classes, a rare class has some of its examples several times in an epoch, and a
    frequent one only some of them.

    Images are mirrored, distorted, moved and cut out, in this order.
    """

    def __init__(
        self, examples: Examples, recipe: Augmentation, *, seed: int, device: torch.device
    ) -> None:
        size = len(examples.labels)
        super().__init__(examples, recipe, size=size, seed=seed, device=device)
        self._mean = (
            self._images[:: max(1, size // _MEAN_IMAGES)].float().mean(dim=(0, 2, 3)).round()
        )

    def make(self, rows: Tensor) -> Batch:
        """Turn rows (B, R) into images. Their targets are whole: nothing is cut out of them."""
        chosen, recipe = rows[:, 0], self._recipe
        images = self._images[chosen]
        if recipe.flip:
            images = torch.where(rows[:, 3, None, None, None] == 1, images.flip(3), images)
        if recipe.distorts:
            images = distort(images.float(), rows[:, 4 : 4 + NUMBERS], recipe)
        images = shift(images, rows[:, 1:3], recipe.shift_px, recipe.pad)
        whole = images
        if recipe.cutout_px:
            images = cut_out(images, rows[:, -2:], side=recipe.cutout_px, colour=self._mean)
        return Batch(images.float() / WHITE, whole.float() / WHITE, self._labels[chosen, None])

    def draw(self, epoch: int) -> Tensor:
        """Sample rows of numbers: example, shift down and right, mirrored or not.

        Then, where images are distorted, how, and where something is cut out, the middle of it.
        """
        generator, recipe = self._generator(epoch), self._recipe
        order = self._order(generator)
        if recipe.views:  # by example, and the same for an example in each epoch of that view
            moves, rest = self._augment(self._generator(-2 - epoch % recipe.views))
            moves, rest = moves[order], rest[order]
        else:
            moves, rest = self._augment(generator)
        flips = self._alternate(order, epoch) if recipe.flip_alternates else moves[:, 2:]
        return torch.cat((order[:, None], moves[:, :2], flips, rest), dim=1)

    def _augment(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample shift down and right and mirror flag (N, 3), then the other numbers (N, R)."""
        recipe = self._recipe
        count, height, width = self.rows_per_epoch, *self._images.shape[2:]

        def integers(low: int, high: int, columns: int = 1) -> Tensor:
            return torch.randint(low, high, (count, columns), generator=generator)

        shifts = integers(-recipe.shift_px, recipe.shift_px + 1, 2)
        flips = torch.zeros_like(shifts[:, :1]) if recipe.flip_alternates else integers(0, 2)
        rest = [torch.empty((count, 0), dtype=torch.int64)]
        if recipe.distorts:
            rest.append(integers(-RESOLUTION, RESOLUTION + 1, NUMBERS))
        if recipe.cutout_px:
            rest += [integers(0, height), integers(0, width)]
        return torch.cat((shifts, flips), dim=1), torch.cat(rest, dim=1)

    def _order(self, generator: torch.Generator) -> Tensor:
        """The examples of an epoch (N,), in random order."""
        count, labels = self.rows_per_epoch, self._labels.cpu()
        if not self._recipe.even_classes:
            return torch.randperm(count, generator=generator)
        classes = sorted(set(labels.tolist()))
        members = [(labels == label).nonzero()[:, 0] for label in classes]
        rank = torch.randperm(len(members), generator=generator).tolist()
        shares = [(count + place) // len(members) for place in rank]  # they add up to the count
        chosen = []
        for own, share in zip(members, shares, strict=True):
            rounds = math.ceil(share / len(own))
            orders = [torch.randperm(len(own), generator=generator) for _ in range(rounds)]
            chosen.append(own[torch.cat(orders)[:share]] if orders else own[:0])
        examples = torch.cat(chosen)
        return examples[torch.randperm(count, generator=generator)]

    def _alternate(self, order: Tensor, epoch: int) -> Tensor:
        """Mirror flags (N, 1): an image is mirrored if it was not in the epoch before."""
        first = torch.randint(0, 2, (len(order),), generator=self._generator(-1))
        return ((first + epoch) % 2)[order, None]


def moved_copies(
    examples: Examples, recipe: Augmentation, *, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Training images, and copies of them moved and mirrored as far as the recipe does.

    The copies are where an image lies in the middle and at the four corners of its shifts.
    Of a class with many images, some are taken, evenly spaced.

    Returns:
        images (N, C, H, W) float32 in [0, 1], and their labels (N,), int64.
    """
    chosen = np.concatenate(
        [
            members[np.linspace(0, len(members) - 1, min(len(members), _COPIED)).astype(int)]
            for members in (
                np.flatnonzero(examples.labels == label) for label in np.unique(examples.labels)
            )
        ]
    )
    images = torch.tensor(examples.images[chosen], device=device)
    labels = torch.tensor(examples.labels[chosen], device=device)
    reach = recipe.shift_px
    corners = [(0, 0), *product((-reach, reach), repeat=2)] if reach else [(0, 0)]
    copies = [
        shift(images, torch.tensor([corner] * len(images), device=device), reach, recipe.pad)
        for corner in corners
    ]
    if recipe.flip:
        copies += [copy.flip(3) for copy in copies]
    return torch.cat(copies).float() / WHITE, labels.repeat(len(copies))


def shift(images: Tensor, shifts: Tensor, reach: int, pad: Pad = "zero") -> Tensor:
    """Move each image (B, C, H, W) down and right by its own whole number of pixels.

    Args:
        shifts: (B, 2) int64, (down, right), each within [-reach, reach].
        reach: to reflect, less than height and width.
    """
    if reach == 0:
        return images
    count, channels, height, width = images.shape
    if pad == "reflect":
        images = functional.pad(images.float(), (reach,) * 4, "reflect")  # not for bytes
    else:
        images = functional.pad(images, (reach,) * 4)
    rows = torch.arange(reach, reach + height, device=images.device) - shifts[:, :1]  # (B, H)
    columns = torch.arange(reach, reach + width, device=images.device) - shifts[:, 1:]  # (B, W)
    pixels = rows[:, :, None] * images.shape[3] + columns[:, None]  # (B, H, W)
    index = pixels.view(count, 1, -1).expand(-1, channels, -1)
    return images.flatten(2).gather(2, index).view(count, channels, height, width)


def cut_out(images: Tensor, middles: Tensor, *, side: int, colour: Tensor) -> Tensor:
    """Fill a square of each image (B, C, H, W) with a colour (C,).

    Args:
        middles: (B, 2) int64 (down, right); what lies outside the image is left out.
        side: of the square, in pixels.
    """
    first = middles - side // 2  # (B, 2)
    down, right = (torch.arange(size, device=images.device) for size in images.shape[2:])
    rows, columns = down - first[:, :1], right - first[:, 1:]
    rows, columns = (rows >= 0) & (rows < side), (columns >= 0) & (columns < side)
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, colour.to(images.dtype)[:, None, None], images)


def distort(images: Tensor, numbers: Tensor, recipe: Augmentation) -> Tensor:
    """Distort each image (B, C, H, W) float32 in [0, 255] by its own numbers.

    Pixels are interpolated bicubically: linear interpolation blurs edges more.

    Args:
        numbers: (B, NUMBERS) int64, each within [-RESOLUTION, RESOLUTION].
        recipe: its largest distortions, in both directions, and what fills edges.
    """
    count, channels, height, width = images.shape
    shares = numbers.float() / RESOLUTION
    right, down = shares[:, 4:].view(count, 2, GRID, GRID).unbind(1)
    reach = 2 * recipe.elastic_px
    points = torch.stack((right * (reach / width), down * (reach / height)), dim=1)
    moves = functional.interpolate(points, (height, width), mode="bicubic", align_corners=True)
    matrices = _matrices(shares[:, :4] * recipe.affine, height / width)
    coordinates = functional.affine_grid(
        matrices, [count, channels, height, width], align_corners=False
    )  # (B, H, W, 2): right and down, from -1 to 1 between the outer edges
    coordinates = coordinates + moves.permute(0, 2, 3, 1)
    padding = "reflection" if recipe.pad == "reflect" else "zeros"
    distorted = functional.grid_sample(
        images, coordinates, mode="bicubic", padding_mode=padding, align_corners=False
    )
    return distorted.clamp(0, WHITE)


def _matrices(shares: Tensor, aspect: float) -> Tensor:
    """Make affine matrices that map an output point (right, down) to its source.

    From shares (B, 4) of the range of rotation, height, width and shear, and from height by width,
    to (B, 2, 3), in halves of width and height.
    """
    turn, height, width, shear = shares.unbind(1)
    cosine, sine = (turn * _TURN).cos(), (turn * _TURN).sin()
    shear, width, height = shear * _SHEAR, 1 + width * _SCALE, 1 + height * _SCALE
    nothing = torch.zeros_like(turn)
    across = (sine - shear * cosine) / width * aspect
    right = torch.stack(((cosine + shear * sine) / width, across, nothing))
    down = torch.stack((-sine / height / aspect, cosine / height, nothing))
    return torch.stack((right, down)).permute(2, 0, 1)
