"""Reconstruction networks, which decode one class capsule's pose to pixels."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.capsnet.network import NetworkConfig
from model.capsnet.squash import EPSILON

SCALE = 0.25
"""c: how far one standard deviation of the code turns the pose. With 15 numbers of about 1 each,
the code and the scale have about equal parts in the direction."""
MOST_DEVIATIONS = 6.0
"""Codes are cut off at this many standard deviations of the class."""
_SHARED = 40
"""The spread of images within all classes weighs as much as so many images of a class's own."""
_POOLED = 2000
"""The most images that measure that spread."""
_LEAST_PX = 48
"""The longer side of a thumbnail has at least this many pixels, where the image has."""


class ClassLayer(nn.Module):
    """The first layer of a decoder: one linear map for each class.

    The paper feeds all capsules with every class except one set to zero. Zeros contribute nothing,
    so one matrix for each class is stored, and only that of the class asked for is used.
    """

    def __init__(self, config: NetworkConfig, features: int) -> None:
        super().__init__()
        self.class_weight = nn.Parameter(
            torch.empty(config.num_classes, config.class_dim, features)
        )
        nn.init.xavier_uniform_(self.class_weight.view(-1, features))

    def multiply(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Map poses (M, D) of classes (M,), int64, to features (M, F), without a bias."""
        weight = self.class_weight.index_select(0, classes)  # (M, D, F)
        features: Tensor = torch.matmul(poses.unsqueeze(1), weight).squeeze(1)
        return features


class Decoder(ClassLayer):
    """512-1024-pixels, fully connected (Sabour 2017, figure 2)."""

    def __init__(self, config: NetworkConfig) -> None:
        first, second = config.decoder_hidden
        super().__init__(config, first)
        self.image_shape = config.image_shape
        self.class_bias = nn.Parameter(torch.zeros(first))
        self.hidden = nn.Linear(first, second)
        self.pixels = nn.Linear(second, math.prod(config.image_shape))

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        first = self.multiply(poses, classes) + self.class_bias
        second = self.hidden(first.relu()).relu()
        return torch.sigmoid(self.pixels(second)).reshape(-1, *self.image_shape)


class ConvolutionalDecoder(ClassLayer):
    """A coarse grid from fully connected layers, then stages that double it to the image.

    A stage is nearest-neighbour upsampling (Odena et al. 2016, "Deconvolution and Checkerboard
    Artifacts") and two 3x3 convolutions, each followed by GELU. Each class has a bias of its own.
    The image may be drawn smaller and doubled by linear interpolation (`decoder_doublings`). The
    number of weights depends on the coarse grid, not on the size of the image.
    """

    def __init__(self, config: NetworkConfig) -> None:
        (first,) = config.decoder_hidden
        super().__init__(config, first)
        self.image_shape = config.image_shape
        coarse, *widths = config.decoder_channels
        channels, height, width = config.image_shape
        self.enlargement = float(2**config.decoder_doublings)
        factor = 2 ** (len(widths) + config.decoder_doublings)
        self.grid = (coarse, math.ceil(height / factor), math.ceil(width / factor))
        self.class_bias = nn.Parameter(torch.zeros(config.num_classes, first))
        self.hidden = nn.Linear(first, math.prod(self.grid))
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1),
                nn.GELU(),
                nn.Conv2d(after, after, 3, padding=1),
                nn.GELU(),
            )
            for before, after in pairwise(config.decoder_channels)
        )
        self.pixels = nn.Conv2d(config.decoder_channels[-1], channels, 3, padding=1)

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        first = self.multiply(poses, classes) + self.class_bias.index_select(0, classes)
        coarse = functional.gelu(self.hidden(functional.gelu(first)))
        maps = coarse.reshape(-1, *self.grid)
        for stage in self.stages:
            maps = stage(functional.interpolate(maps, scale_factor=2.0, mode="nearest"))
        images = self.pixels(maps)
        if self.enlargement > 1:
            images = functional.interpolate(
                images, scale_factor=self.enlargement, mode="bilinear", align_corners=False
            )
        _, height, width = self.image_shape
        return torch.sigmoid(images[:, :, :height, :width])


def build_decoder(config: NetworkConfig) -> ClassLayer:
    """The decoder that a configuration asks for, with weights sampled by torch's generator."""
    return ConvolutionalDecoder(config) if config.decoder_channels else Decoder(config)


def decoder_channels_for(height: int, width: int, *, widest: int = 64) -> tuple[int, ...]:
    """Channels for images of a size, so that the coarse grid is about 8x8 (5x5 to 11x11) cells.

    Each stage has half as many channels as the one before, at least 16.
    """
    stages = max(1, round(math.log2(max(height, width) / 8)))
    return tuple(max(16, widest // 2**stage) for stage in range(stages + 1))


class ClassCodes(nn.Module):
    """Homogeneous poses: a linear code of thumbnails for each class, and its decoder.

    A pose is l (1, c z) / |(1, c z)|, as in homogeneous coordinates: its first number is the scale,
    and the others, relative to it, are a linear code z of the image. Routing decides the length l
    alone. The codes start as the principal components of each class's own training images, so that
    a pose says how the image looks as a member of that class, and the length whether it is one.
    Classes with some thirty images need that: routed votes learnt from so few collapse to about two
    dimensions. Components of so few images miss much of new ones, so that they share in the spread
    of all classes.

    Thumbnails are images averaged over squares of `factor` pixels, P numbers in all. Decoding
    enlarges them by linear interpolation.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.image_shape = config.image_shape
        self.factor = thumbnail_factor(config.height, config.width)
        channels, height, width = config.image_shape
        self.thumbnail_shape = (channels, height // self.factor, width // self.factor)
        pixels = channels * self.thumbnail_shape[1] * self.thumbnail_shape[2]
        numbers = config.class_dim - 1
        self.components = nn.Parameter(torch.zeros(config.num_classes, numbers, pixels))
        """V, (K, D - 1, P): the axes of each class's code, of unit length."""
        self.deviations = nn.Parameter(torch.ones(config.num_classes, numbers))
        """The standard deviation of each class's training images along its axes, (K, D - 1)."""
        self.means = nn.Parameter(torch.full((config.num_classes, pixels), 0.5))
        """The mean thumbnail of each class, (K, P)."""

    def encode(self, images: Tensor) -> Tensor:
        """The codes z (N, K, D - 1) of images (N, C, H, W): standard deviations of each class."""
        pixels = self._thumbnails(images).flatten(1)  # (N, P)
        classes, numbers, count = self.components.shape
        offsets = torch.matmul(self.components, self.means.unsqueeze(2)).squeeze(2)  # (K, D - 1)
        products = torch.matmul(pixels, self.components.reshape(-1, count).transpose(0, 1))
        codes = (products.reshape(-1, classes, numbers) - offsets) / self.deviations
        return codes.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)

    def poses(self, lengths: Tensor, images: Tensor) -> Tensor:
        """The poses (N, K, D) of lengths (N, K) and images (N, C, H, W)."""
        with torch.autocast(lengths.device.type, enabled=False):
            codes = SCALE * self.encode(images.float())
            ones = codes[..., :1] * 0 + 1  # of the batch's size, without a Shape in the graph
            directions = torch.cat((ones, codes), dim=-1)
            norms = torch.sqrt((directions * directions).sum(dim=-1, keepdim=True))
            return directions * (lengths.unsqueeze(-1) / norms)

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Decode poses (M, D) of classes (M,), int64, to images (M, C, H, W) in [0, 1]."""
        scale = poses[:, :1].clamp_min(EPSILON)
        codes = (poses[:, 1:] / scale / SCALE).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        numbers = codes * self.deviations.index_select(0, classes)
        components = self.components.index_select(0, classes)  # (M, D - 1, P)
        pixels = torch.matmul(numbers.unsqueeze(1), components).squeeze(1)
        pixels = pixels + self.means.index_select(0, classes)
        images = pixels.reshape(-1, *self.thumbnail_shape)
        if self.factor > 1:
            images = functional.interpolate(
                images, scale_factor=float(self.factor), mode="bilinear", align_corners=False
            )
        return images.clamp(0, 1)

    @torch.no_grad()
    def fit(self, images: Tensor, labels: Tensor) -> None:
        """Set the codes to the principal components of each class.

        A class's covariance is mixed with that within all classes, which weighs little where there
        are many images. Fewer directions than numbers leave the other numbers without effect.

        Args:
            images: (N, C, H, W) in [0, 1], training images.
            labels: (N,), int64.
        """
        pixels = self._thumbnails(images).flatten(1).double()  # (N, P)
        present = sorted(set(labels.tolist()))
        for label in present:
            own = labels == label
            self.means[label] = mean = pixels[own].mean(dim=0)
            pixels[own] -= mean
        numbers = self.components.shape[1]
        pooled = pixels[:: math.ceil(len(pixels) / _POOLED)]
        axes, deviations = _principal_axes(pooled, len(pooled), 4 * numbers)
        spread = axes * deviations.unsqueeze(1) * _SHARED**0.5  # as so many images
        for label in present:
            own_pixels = pixels[labels == label]
            rows, count = torch.cat((own_pixels, spread)), len(own_pixels) + _SHARED
            axes, deviations = _principal_axes(rows, count, numbers)
            self.components[label].zero_()
            self.components[label, : len(axes)] = axes.to(self.components.dtype)
            self.deviations[label].fill_(1)
            self.deviations[label, : len(axes)] = deviations.to(self.deviations.dtype)

    def _thumbnails(self, images: Tensor) -> Tensor:
        return functional.avg_pool2d(images, self.factor) if self.factor > 1 else images


def thumbnail_factor(height: int, width: int) -> int:
    """How many times smaller than the image its thumbnail is: it divides both sides."""
    fitting = (factor for factor in (4, 3, 2) if not height % factor and not width % factor)
    return next((f for f in fitting if max(height, width) // f >= _LEAST_PX), 1)


def _principal_axes(rows: Tensor, images: int, count: int) -> tuple[Tensor, Tensor]:
    """The principal axes (M, P) of centred rows (N, P), and the deviation along each; M <= count.

    They come from the smaller of the two matrices of products. Axes without variance are left out.

    Args:
        images: how many images the rows stand for.
    """
    few = len(rows) < rows.shape[1]
    values, vectors = torch.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    values, vectors = values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]
    kept = values > 1e-9 * values[0].clamp_min(1e-30)
    values, vectors = values[kept], vectors[:, kept]
    axes = (rows.T @ vectors / values.sqrt() if few else vectors).T
    return axes, (values / images).sqrt()
