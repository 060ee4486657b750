"""What a pose explains of images, next to PCA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.bundle import Bundle
from model.preprocess import scale
from model.runtime import Runtime
from training.answers import answer_images
from training.data.datasets import Examples, first_rows
from training.data.pairs import fixed_pairs
from training.explained import (
    draw_components,
    explained_share,
    measure_explained,
)

RNG = np.random.default_rng(0)


def test_the_share_is_that_of_the_variance() -> None:
    """All of it by the images themselves, none by the mean, less than none by worse."""
    images = RNG.random((20, 6)).astype(np.float32)
    mean = images.mean(axis=0)
    assert 1 == explained_share(images, images, mean)
    assert 0 == explained_share(images, np.tile(mean, (20, 1)), mean)
    assert explained_share(images, 1 - images, mean) < 0


@pytest.mark.parametrize("count", [40, 9], ids=["more images than pixels", "fewer"])
def test_each_class_has_its_own_components(count: int) -> None:
    """Each class is a plane of its own: two components draw its images, and none others."""
    planes, labels = RNG.normal(size=(2, 2, 12)), np.arange(2 * count) % 2
    numbers = RNG.normal(size=(2 * count, 2))
    images = (np.einsum("nd,ndp->np", numbers, planes[labels]) + 3).astype(np.float32)
    shares = [
        explained_share(images, drawn, images.mean(axis=0))
        for shown, sizes in ((labels, (0, 1, 2)), (1 - labels, (2,)))
        for drawn in draw_components(
            images, labels, images=images, labels=shown, sizes=sizes
        ).values()
    ]
    assert 0 <= shares[0] < shares[1] < shares[2]
    assert 1 == pytest.approx(shares[2], abs=1e-3)
    assert shares[3] < 0.9


def test_an_image_is_drawn_as_what_it_is_answered(runtime: Runtime) -> None:
    """From the pose of its most present class, whatever the label says."""
    examples = Examples(RNG.integers(0, 256, (20, 1, 28, 28), np.uint8), np.arange(20) % 2)
    _, rows = measure_explained(
        runtime, examples, answer_images(runtime, examples), described="of noise"
    )
    presence, poses = runtime.encode(rows["image"])
    seen = presence.argmax(axis=1)
    drawn = runtime.decode(poses[np.arange(len(seen)), seen], seen)
    assert np.allclose(drawn, rows[f"pose, {poses.shape[2]}"], atol=1e-5)


def test_pairs_are_explained_digit_by_digit(strokes_bundle_path: Path) -> None:
    """Each digit alone is what its capsule should draw."""
    bundle = Bundle.open(strokes_bundle_path)
    digits = Examples(RNG.integers(0, 256, (30, 1, 28, 28), np.uint8), np.arange(30) % 3)
    runtime, size = Runtime(bundle), bundle.manifest.height
    pairs = fixed_pairs(digits, 10, size=size, shift_px=2, seed=0)
    answers = answer_images(runtime, pairs)
    explained, rows = measure_explained(runtime, digits, answers, described="")
    assert 20 == explained.count
    shown = first_rows(pairs.labels.ravel(), 10)
    assert pairs.object_images is not None
    alone = pairs.object_images.reshape(-1, 1, size, size)
    assert np.allclose(scale(alone[shown]), rows["image"])
    labels = pairs.labels.ravel()[shown]
    drawn = runtime.decode(answers.poses[shown // 2, labels], labels)
    assert np.allclose(drawn, rows["pose, 8"], atol=1e-5)
