"""How often a network is wrong, and how."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from model.capsnet import CapsNet
from model.preprocess import scale
from training.datasets import Examples

_BATCH = 500


def predict(
    network: CapsNet, images: NDArray[np.uint8], *, device: torch.device
) -> NDArray[np.int64]:
    """The longest capsule's class of each image (N, H, W)."""
    answers = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = torch.from_numpy(scale(images[start : start + _BATCH])).to(device)
            lengths, _ = network(batch)
            answers.append(lengths.argmax(dim=1).cpu())
    return torch.cat(answers).numpy()


def error_percent(network: CapsNet, examples: Examples, *, device: torch.device) -> float:
    """Share of wrong answers, in percent. One view of each image, no augmentation."""
    answers = predict(network, examples.images, device=device)
    return 100 * float(np.mean(answers != examples.labels))


def confusion(
    labels: NDArray[np.integer], answers: NDArray[np.integer], classes: int
) -> NDArray[np.int64]:
    """Counts (K, K): row is the true class, column the answer."""
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (labels, answers), 1)
    return counts
