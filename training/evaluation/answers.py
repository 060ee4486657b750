"""What a network answers, and how often that is wrong."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.capsnet import CapsNet
from model.preprocess import scale

_BATCH = 500


class Labelled(Protocol):
    """Images with what they show."""

    @property
    def images(self) -> NDArray[np.uint8]:
        """(N, H, W), light strokes on dark."""
        ...

    @property
    def labels(self) -> NDArray[np.uint8]:
        """(N,), or (N, C) where C classes are in each image."""
        ...


class PairErrors(NamedTuple):
    """Wrong answers of a hundred, where the answer to a pair are its two longest capsules."""

    pair_percent: float
    """Pairs of which not both digits were named: the paper's measure."""
    digit_percent: float
    """Digits that were not named."""


def measure_lengths(
    network: nn.Module, images: NDArray[np.uint8], *, device: torch.device
) -> NDArray[np.float32]:
    """Capsule lengths (N, K) of images (N, H, W). One view of each, no augmentation.

    Args:
        network: a capsule network, or another whose answer has `lengths`.
    """
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(scale(images[start : start + _BATCH])).to(device)
            parts.append(network(batch).lengths.cpu())
    return np.asarray(torch.cat(parts))


def draw_classes(
    network: CapsNet, images: NDArray[np.uint8], classes: NDArray[np.integer]
) -> NDArray[np.float32]:
    """Decode C classes (N, C) of each image (N, H, W), each alone: (N, C, H, W). On the CPU."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            some = slice(start, start + _BATCH)
            chosen = torch.from_numpy(classes[some].astype(np.int64))
            poses = network(torch.from_numpy(scale(images[some]))).poses
            own = poses.take_along_dim(chosen[..., None], dim=1).flatten(0, 1)
            drawn = network.decode(own, chosen.flatten())
            parts.append(drawn.reshape(*chosen.shape, *drawn.shape[2:]))
    return np.asarray(torch.cat(parts))


def longest(lengths: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Classes (N, count) of the longest capsules, the longest first; lengths are (N, K)."""
    return np.argsort(-lengths, axis=1, kind="stable")[:, :count]


def answer(lengths: NDArray[np.float32], labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """What lengths (N, K) say, in the order of classes: (N, C).

    Args:
        labels: (N,), or (N, C) where each image has C of them; so many capsules are taken.
    """
    return np.sort(longest(lengths, labels.reshape(len(labels), -1).shape[1]))


def is_wrong(lengths: NDArray[np.float32], labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which answers are wrong, (N,): those that are not exactly the labels, in any order."""
    wanted = np.sort(labels.reshape(len(labels), -1))
    return np.asarray((answer(lengths, labels) != wanted).any(axis=1))


def error_percent(network: nn.Module, examples: Labelled, *, device: torch.device) -> float:
    """Share of wrong answers, in percent; to a pair, unless both digits are named."""
    lengths = measure_lengths(network, examples.images, device=device)
    return 100 * float(is_wrong(lengths, examples.labels).mean())


def is_missed(lengths: NDArray[np.float32], labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which of the labels (N, 2) are not among the two longest capsules, (N, 2)."""
    named = longest(lengths, 2)
    return np.asarray((labels[:, :, None] != named[:, None, :]).all(axis=2))


def pair_errors(lengths: NDArray[np.float32], labels: NDArray[np.integer]) -> PairErrors:
    """How often the two longest capsules err, from lengths (N, K) and labels (N, 2)."""
    missed = is_missed(lengths, labels)
    return PairErrors(100 * float(missed.any(axis=1).mean()), 100 * float(missed.mean()))


def confusion(
    labels: NDArray[np.integer], answers: NDArray[np.integer], classes: int
) -> NDArray[np.int64]:
    """Counts (K, K): row is the true class, column the answer."""
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (labels, answers), 1)
    return counts
