"""What a pose explains of images, next to PCA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import CARD, Bundle
from model.preprocess import scale
from model.runtime import Runtime
from training.analysis.bundle import write_findings
from training.answers import answer_images, answer_pairs
from training.card import write_card
from training.data.datasets import Examples, spread_rows
from training.data.pairs import fixed_pairs
from training.evaluate import training_data_of
from training.explained import (
    draw_components,
    explained_share,
    measure_explained,
)
from training.figures import DECODED, draw_decoded

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


def test_manifest_card_and_figure_tell_it(bundle: Bundle, data_dir: Path) -> None:
    """PCA with as many numbers as the pose has is among them."""
    data = training_data_of(bundle, data_dir)
    runtime = Runtime(bundle)
    held_out = answer_images(runtime, *data.validation)
    explained, rows = measure_explained(runtime, data.training, held_out, described="of toys")
    draw_decoded([], rows, bundle.path / DECODED)
    write_card(write_findings(bundle, explained=explained))
    assert Bundle.open(bundle.path).manifest.explained == explained
    assert {"8", "16", "32", "64"} == explained.pca.keys()
    assert explained.pca["16"] == explained.pca_same > explained.pca["8"]
    card = (bundle.path / CARD).read_text()
    assert "## What a pose explains" in card
    assert explained.is_low  # the network is untrained
    assert "This is less than PCA of the class explains with as many numbers." in card
    assert "](decoded.png)" in card
    with Image.open(bundle.path / DECODED) as picture:
        assert "PNG" == picture.format


def test_pairs_are_explained_digit_by_digit(strokes_bundle_path: Path) -> None:
    """Each digit alone is what its capsule should draw."""
    bundle = Bundle.open(strokes_bundle_path)
    digits = Examples(RNG.integers(0, 256, (30, 1, 28, 28), np.uint8), np.arange(30) % 3)
    runtime, size = Runtime(bundle), bundle.manifest.height
    pairs = fixed_pairs(digits, 10, size=size, shift_px=2, seed=0)
    answers = answer_pairs(runtime, pairs)
    explained, rows = measure_explained(runtime, digits, answers, described="")
    assert 20 == explained.count
    shown = spread_rows(pairs.labels.ravel(), 10)
    alone = pairs.object_images.reshape(-1, 1, size, size)
    assert np.allclose(scale(alone[shown]), rows["image"])
    labels = pairs.labels.ravel()[shown]
    drawn = runtime.decode(answers.poses[shown // 2, labels], labels)
    assert np.allclose(drawn, rows["pose, 8"], atol=1e-5)
