"""A network's answers to images, and how often they are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.capsnet import Network
from model.outputs import Encoding
from model.preprocess import Floats, scale
from model.views.net import most_present
from training.data.datasets import Examples

if TYPE_CHECKING:
    from model.runtime import Runtime

BATCH = 100
"""The number of images that are encoded at a time."""
NO_CLASS = -1
"""The label of images that show none of the classes."""

Labels = NDArray[np.integer]


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers(Examples):
    """Images, and a network's answers to them."""

    presence: Floats
    """The presence (N, K) of each class."""
    poses: Floats
    """The poses (N, K, D) of each class."""

    @property
    def first(self) -> NDArray[np.int64]:
        """The most present class of each image, (N,)."""
        return np.asarray(self.presence.argmax(axis=1))


class Recall(NamedTuple):
    """How many images of a class are answered with that class."""

    class_name: str
    right: int
    images: int

    def __str__(self) -> str:
        return f"{self.class_name} {self.right:,} of {self.images:,}"


def answer_images(runtime: Runtime, examples: Examples) -> Answers:
    """Answer images, or pairs of digits."""
    encoding = encode(runtime, examples.images)
    return Answers(**vars(examples), **encoding._asdict())


def measure_presence(
    network: Network, images: NDArray[np.uint8] | Floats, device: torch.device
) -> NDArray[np.float32]:
    """Measure the presence (N, K) of each class in images (N, C, H, W), without augmentation.

    The network computes in evaluation mode, and is left in the mode that it was in.
    """
    parts = []
    with evaluating(network), torch.inference_mode():
        for start in range(0, len(images), BATCH):
            batch = torch.from_numpy(as_floats(images[start : start + BATCH])).to(device)
            parts.append(network(batch).presence.float().cpu())
    return np.asarray(torch.cat(parts))


def encode(runtime: Runtime, images: NDArray[np.uint8] | Floats) -> Encoding[Floats]:
    """Encode images (N, C, H, W) in batches: pixels, or floats in [0, 1]."""
    parts = [
        runtime.encode(as_floats(images[start : start + BATCH]))
        for start in range(0, len(images), BATCH)
    ]
    return Encoding(*map(np.concatenate, zip(*parts, strict=True)))


def decode(runtime: Runtime, poses: Floats, labels: Labels) -> Floats:
    """Decode poses (N, D) of classes (N,) in batches, to (N, C, H, W)."""
    classes = labels.astype(np.int64)
    parts = [
        runtime.decode(poses[start : start + BATCH], classes[start : start + BATCH])
        for start in range(0, len(poses), BATCH)
    ]
    return np.concatenate(parts)


def decode_classes(runtime: Runtime, poses: Floats, classes: Labels) -> Floats:
    """Decode the poses (N, K, D) of L classes (N, L) of each image, to (N, L, C, H, W)."""
    chosen = np.take_along_axis(poses, classes[..., None], axis=1)
    decoded = decode(runtime, chosen.reshape(-1, poses.shape[-1]), classes.ravel())
    return decoded.reshape(*classes.shape, *decoded.shape[1:])


def as_floats(images: NDArray[Any]) -> Floats:
    """Images as floats in [0, 1]: pixels are scaled, floats are left as they are."""
    return scale(images) if images.dtype == np.uint8 else images


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


def is_missed(presence: Floats, labels: Labels) -> NDArray[np.bool_]:
    """Return which labels (N, L) are not among the L most present classes."""
    named = most_present(presence, labels.shape[1])
    return np.asarray((labels[:, :, None] != named[:, None, :]).all(axis=2))


def is_wrong(presence: Floats, labels: Labels) -> NDArray[np.bool_]:
    """Return which answers are wrong, (N,): those whose classes are not exactly the labels.

    Args:
        labels: (N,), or (N, L) where each image shows L classes.
    """
    return np.asarray(is_missed(presence, labels.reshape(len(labels), -1)).any(axis=1))


def confusion(labels: Labels, presence: Floats) -> NDArray[np.int64]:
    """Count answers (K, K) to single images: the row is the true class, the column the answer."""
    from sklearn.metrics import confusion_matrix  # noqa: PLC0415  scikit-learn takes a second

    classes = range(presence.shape[1])
    return np.asarray(confusion_matrix(labels, presence.argmax(axis=1), labels=classes))


def recalls(labels: Labels, presence: Floats, class_names: Sequence[str]) -> tuple[Recall, ...]:
    """The recall of each class that has images, the lowest first.

    Args:
        labels: (N,).
        presence: (N, K).
    """
    counts = confusion(labels, presence)
    columns = class_names, counts.diagonal().tolist(), counts.sum(axis=1).tolist()
    present = [recall for recall in map(Recall, *columns) if recall.images]
    return tuple(sorted(present, key=lambda recall: recall.right / recall.images))


def most_confused(
    labels: Labels, presence: Floats, class_names: Sequence[str]
) -> tuple[str, str, int] | None:
    """The most frequent mistake: class, answer, and how often; None where there is none twice."""
    counts = confusion(labels, presence)
    np.fill_diagonal(counts, 0)
    label, other = divmod(int(counts.argmax()), len(counts))
    if counts[label, other] < 2:
        return None
    return class_names[label], class_names[other], int(counts[label, other])
