"""Measure probabilities and sets of labels on test images, on changed ones, and on novel ones.

Coverage is promised for images like those of the calibration. Others show how it degrades.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from model.bundle import Manifest
from model.bundle.confidence import Confidence
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.answers import BATCH
from training.data.datasets import Examples
from training.novelty import draw_others
from training.random_sample import draw_rows, objects_of
from training.reliability import measure_images, measure_unlabelled

COUNT = 2000
"""The number of test images that are turned or made noisy."""
TURN_DEG, NOISE = 30, 0.2
"""The angle, and the standard deviation of the noise of each pixel, which are in [0, 1]."""
_SEED = 13


class Kind(NamedTuple):
    """Images (N, C, H, W) in [0, 1] with labels (N,), or without, where they show no class."""

    images: Floats
    labels: NDArray[np.int64] | None = None


def draw_kinds(manifest: Manifest, examples: Examples, data_dir: Path) -> dict[str, Kind]:
    """Test images, COUNT of them turned or with noise, and images of other kinds."""
    images, labels = scale(examples.images), examples.labels
    objects = objects_of(manifest.dataset, len(labels))
    drawn = draw_rows(labels, COUNT, seed=_SEED, objects=objects)
    few, few_labels = images[drawn], labels[drawn]
    noise = np.random.default_rng(_SEED).normal(0, NOISE, few.shape).astype(np.float32)
    return {
        "test images": Kind(images, labels),
        f"turned by {TURN_DEG}°": Kind(turn(few, TURN_DEG, manifest), few_labels),
        f"with noise of {NOISE}": Kind((few + noise).clip(0, 1), few_labels),
        **{kind: Kind(others) for kind, others in draw_others(manifest, data_dir).items()},
    }


def turn(images: Floats, degrees: float, manifest: Manifest) -> Floats:
    """Turn images around their middle; photographs are mirrored at the edge, others are black."""
    mode = "reflect" if manifest.preprocess == "crop" else "constant"
    turned = ndimage.rotate(images, degrees, axes=(3, 2), reshape=False, order=1, mode=mode)
    return np.asarray(turned.clip(0, 1), np.float32)


def measure_kinds(
    runtime: Runtime, confidence: Confidence, kinds: Mapping[str, Kind]
) -> dict[str, dict[str, Any]]:
    """Measure each kind of images: see `training.reliability`."""
    scores = {}
    for name, (images, labels) in kinds.items():
        presence = np.concatenate(
            [
                runtime.encode(images[start : start + BATCH]).presence
                for start in range(0, len(images), BATCH)
            ]
        )
        scores[name] = (
            measure_unlabelled(confidence, presence)
            if labels is None
            else measure_images(confidence, presence, labels)
        )
    return scores
