"""A network's answers, and how often they are wrong. Needs torch and numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix
from torch import nn

from model.capsnet import Network
from model.outputs import Encoding
from model.preprocess import Floats, scale
from model.views.net import most_present
from training.data.datasets import Examples
from training.data.pairs import PairSet

if TYPE_CHECKING:
    from model.runtime import Runtime

BATCH = 100
"""The number of images that are encoded at a time."""

Labels = NDArray[np.integer]
Labelled = Examples | PairSet
"""Images (N, C, H, W) with their labels: (N,), or (N, 2) of pairs."""


class WrongAnswers(NamedTuple):
    """Wrongly answered images (N, C, H, W), with labels and answers (N, L), sorted."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    answers: NDArray[np.int64]
    presence: Floats
    """The presence (N, 2) of the least present class among the labels, then among the answers."""


class Recall(NamedTuple):
    """How many images of a class are answered with that class."""

    class_name: str
    right: int
    images: int

    def __str__(self) -> str:
        return f"{self.class_name} {self.right:,} of {self.images:,}"


def measure_presence(
    network: Network, images: NDArray[np.uint8], device: torch.device
) -> NDArray[np.float32]:
    """Measure the presence (N, K) of each class in images (N, C, H, W), without augmentation.

    The network computes in evaluation mode, and is left in the mode that it was in.
    """
    parts = []
    with evaluating(network), torch.inference_mode():
        for start in range(0, len(images), BATCH):
            batch = torch.from_numpy(scale(images[start : start + BATCH])).to(device)
            parts.append(network(batch).presence.float().cpu())
    return np.asarray(torch.cat(parts))


def encode(runtime: Runtime, images: NDArray[np.uint8] | Floats) -> Encoding[Floats]:
    """Encode images (N, C, H, W) in batches: pixels, or floats in [0, 1]."""
    parts = []
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH]
        parts.append(runtime.encode(as_floats(batch)))
    presence, poses = map(np.concatenate, zip(*parts, strict=True))
    return Encoding(presence, poses)


def decode(runtime: Runtime, poses: Floats, labels: Labels) -> Floats:
    """Decode poses (N, D) of classes (N,) in batches, to (N, C, H, W)."""
    starts = range(0, len(poses), BATCH)
    parts = [
        runtime.decode(poses[start : start + BATCH], labels[start : start + BATCH].astype(np.int64))
        for start in starts
    ]
    return np.concatenate(parts)


def as_floats(images: NDArray[np.uint8] | Floats) -> Floats:
    """Images as floats in [0, 1]: pixels are scaled, floats are left as they are."""
    if images.dtype == np.uint8:
        return scale(cast("NDArray[np.uint8]", images))
    return cast("Floats", images)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Set a network to evaluation mode in the context, and back after it."""
    is_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(is_training)


def answer(presence: Floats, labels: Labels) -> NDArray[np.int64]:
    """The L most present classes (N, L) of presence (N, K), in order, L as in labels."""
    return np.sort(most_present(presence, labels.reshape(len(labels), -1).shape[1]))


def is_wrong(presence: Floats, labels: Labels) -> NDArray[np.bool_]:
    """Return which answers are wrong, (N,): those whose classes are not exactly the labels.

    Args:
        labels: (N,), or (N, L) where each image shows L classes.
    """
    wanted = np.sort(labels.reshape(len(labels), -1))
    return np.asarray((answer(presence, labels) != wanted).any(axis=1))


def is_missed(presence: Floats, labels: Labels) -> NDArray[np.bool_]:
    """Return which labels are not among the two most present classes, (N, 2)."""
    named = most_present(presence, 2)
    return np.asarray((labels[:, :, None] != named[:, None, :]).all(axis=2))


def find_wrong(examples: Labelled, presence: Floats) -> WrongAnswers:
    """The wrongly answered of N examples with presence (N, K), in their order."""
    wrong = is_wrong(presence, examples.labels)
    labels = np.sort(examples.labels.reshape(len(presence), -1).astype(np.int64))[wrong]
    answers = answer(presence, examples.labels)[wrong]
    least = [
        np.take_along_axis(presence[wrong], classes, axis=1).min(axis=1)
        for classes in (labels, answers)
    ]
    return WrongAnswers(examples.images[wrong], labels, answers, np.stack(least, axis=1))


def confusion(labels: Labels, answers: Labels, classes: int) -> NDArray[np.int64]:
    """Count answers (K, K): the row is the true class, the column the answer."""
    return np.asarray(confusion_matrix(labels, answers, labels=range(classes)))


def recalls(labels: Labels, presence: Floats, class_names: Sequence[str]) -> tuple[Recall, ...]:
    """The recall of each class that has images, the lowest first.

    Args:
        labels: (N,).
        presence: (N, K).
    """
    counts = confusion(labels, most_present(presence, 1)[:, 0], len(class_names))
    found = [
        Recall(name, int(row[label]), int(row.sum()))
        for label, (name, row) in enumerate(zip(class_names, counts, strict=True))
        if row.any()
    ]
    return tuple(sorted(found, key=lambda recall: recall.right / recall.images))


def most_confused(
    labels: Labels, presence: Floats, class_names: Sequence[str]
) -> tuple[str, str, int] | None:
    """The most frequent mistake: class, answer, and how often; None where there is none twice."""
    counts = confusion(labels, most_present(presence, 1)[:, 0], len(class_names))
    np.fill_diagonal(counts, 0)
    label, other = divmod(int(counts.argmax()), len(counts))
    if counts[label, other] < 2:
        return None
    return class_names[label], class_names[other], int(counts[label, other])


def decode_each(
    decode: Callable[[Floats, NDArray[np.int64]], Floats], poses: Floats, classes: Labels
) -> Floats:
    """Decode the poses of L classes (N, L) of each image, one class at a time.

    Args:
        decode: poses (M, D) of classes (M,) to images (M, 1, H, W).
        poses: (N, K, D).

    Returns:
        grey images (N, L, H, W).
    """
    chosen = classes.astype(np.int64)
    label_poses = np.take_along_axis(poses, chosen[:, :, None], axis=1)
    images = decode(label_poses.reshape(-1, poses.shape[-1]), chosen.ravel())
    return images.reshape(*classes.shape, *images.shape[2:])
