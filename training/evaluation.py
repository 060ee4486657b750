"""How often a network is wrong, and how."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.capsnet import CapsNet
from model.preprocess import scale
from training.datasets import Examples
from training.pairs import PairSet

_BATCH = 500


class PairErrors(NamedTuple):
    """Wrong answers of a hundred, where the answer to a pair are its two longest capsules."""

    pair_percent: float
    """Pairs of which not both digits were named: the paper's measure."""
    digit_percent: float
    """Digits that were not named."""


def measure_lengths(
    network: CapsNet, images: NDArray[np.uint8], *, device: torch.device
) -> NDArray[np.float32]:
    """Capsule lengths (N, K) of images (N, H, W). One view of each, no augmentation."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(scale(images[start : start + _BATCH])).to(device)
            parts.append(network(batch).lengths.cpu())
    return np.asarray(torch.cat(parts))


def predict(
    network: CapsNet, images: NDArray[np.uint8], *, device: torch.device
) -> NDArray[np.int64]:
    """The longest capsule's class of each image (N, H, W)."""
    return np.asarray(measure_lengths(network, images, device=device).argmax(axis=1))


def error_percent(network: CapsNet, examples: Examples, *, device: torch.device) -> float:
    """Share of wrong answers, in percent."""
    answers = predict(network, examples.images, device=device)
    return 100 * float(np.mean(answers != examples.labels))


def pair_errors(network: CapsNet, pairs: PairSet, *, device: torch.device) -> PairErrors:
    """How often a network errs on pairs."""
    return count_pair_errors(measure_lengths(network, pairs.images, device=device), pairs.labels)


def count_pair_errors(lengths: NDArray[np.float32], labels: NDArray[np.integer]) -> PairErrors:
    """From lengths (N, K) and labels (N, 2)."""
    named = two_longest(lengths)
    missed = 2 - (labels[:, :, None] == named[:, None, :]).sum(axis=(1, 2))
    return PairErrors(100 * float(np.mean(missed > 0)), 50 * float(np.mean(missed)))


def two_longest(lengths: NDArray[np.float32]) -> NDArray[np.int64]:
    """Classes (N, 2) of the longest capsule and of the next one."""
    return np.argsort(-lengths, axis=1, kind="stable")[:, :2]


def confusion(
    labels: NDArray[np.integer], answers: NDArray[np.integer], classes: int
) -> NDArray[np.int64]:
    """Counts (K, K): row is the true class, column the answer."""
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (labels, answers), 1)
    return counts
