from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from model.capsnet.dynamic import DynamicConfig
from training.data.augment import Batch
from training.data.datasets import DATASETS, Examples, load
from training.data.pairs import (
    TEST_DIGESTS,
    TEST_SEED,
    PairStream,
    digest,
    draw_pairs,
    fixed_pairs,
    published_pairs,
)
from training.data.source import DatasetError
from training.recipes import Recipe

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def squares() -> Examples:
    """40 digits of four classes: a 4x4 square whose brightness is the digit's number + 100."""
    images = np.zeros((40, 1, 12, 12), np.uint8)
    images[:, 0, 4:8, 4:8] = 100 + np.arange(40)[:, None, None]
    return Examples(images, np.arange(40) % 4)


def stream(examples: Examples, *, batch_size: int = 8, seed: int = 1) -> PairStream:
    """Pairs on 20x20 pixels, shifted by up to four."""
    network = DynamicConfig(height=20, width=20)
    recipe = Recipe("r", task="pairs", network=network, batch_size=batch_size, shift_px=4)
    return PairStream(examples, recipe, size_px=recipe.network.height, seed=seed, device=CPU)


def assert_same(expected: Batch, actual: Batch) -> None:
    torch.testing.assert_close(tuple(expected), tuple(actual), rtol=0, atol=0)


def test_all_pairs_of_classes_are_equally_likely(squares: Examples) -> None:
    """Each of the twelve ordered pairs of four classes makes up a twelfth, within four sigma."""
    rows = draw_pairs(squares.labels, 12_000, 1, shift_px=0)
    labels = squares.labels[rows[:, :2]]
    counts = np.bincount(labels[:, 0] * 4 + labels[:, 1], minlength=16).reshape(4, 4)
    assert np.abs(counts[~np.eye(4, dtype=bool)] - 1000).max() < 4 * 31


@pytest.mark.parametrize("step", [1, 7, 30])
def test_a_batch_depends_on_seed_and_step_alone(squares: Examples, step: int) -> None:
    """A resumed stream goes on as if it had never been interrupted; another seed gives others."""
    running = stream(squares)
    for earlier in range(step):
        running.batch(earlier)
    torch.manual_seed(99)
    expected = running.batch(step)
    assert_same(expected, stream(squares).batch(step))
    assert not torch.equal(expected.images, stream(squares, seed=2).batch(step).images)


def test_an_image_is_its_layers_added_up(squares: Examples) -> None:
    """min(a + b, 255) / 255, and each layer is the labelled digit, shifted."""
    images, layers, labels = stream(squares, batch_size=200).batch(0)
    torch.testing.assert_close(layers.sum(dim=1, keepdim=True).clamp(max=1), images)
    numbers = (layers.amax(dim=(2, 3)) * 255).round().long() - 100
    assert torch.equal(labels, numbers % 4)


def test_a_fixed_set_is_the_same_bit_for_bit(squares: Examples) -> None:
    """A change of numbers, order, arithmetic, shapes or types shows in and next to the digest."""
    pairs = fixed_pairs(squares, 50, size=20, shift_px=4, seed=7)
    labels = pairs.labels.astype(np.uint8)
    found = hashlib.sha256(pairs.images.tobytes() + labels.tobytes()).hexdigest()
    assert "c18c800b3e66d93b7f4aec6284c03410e3367cda5abbca9a453586cd6b7c2921" == found
    assert pairs.object_images is not None
    arrays = (pairs.images, pairs.object_images, pairs.labels)
    assert [(50, 1, 20, 20), (50, 2, 20, 20), (50, 2)] == [array.shape for array in arrays]
    assert [np.uint8, np.uint8, np.int64] == [array.dtype for array in arrays]


@pytest.mark.data
@pytest.mark.parametrize("shift_px", TEST_DIGESTS)
def test_test_pairs_are_the_published_ones(shift_px: int) -> None:
    """MNIST's test digits make the pairs whose digests are in the docs."""
    if "CAPSNET_DATA_DIR" not in os.environ:
        pytest.skip("needs the data sets: set CAPSNET_DATA_DIR")
    digits = load(DATASETS["mnist"], "test", Path(os.environ["CAPSNET_DATA_DIR"]))
    pairs = published_pairs(digits, size=36, shift_px=shift_px)
    assert pairs.object_images is not None
    assert (10_000, 2, 36, 36) == pairs.object_images.shape
    docs = (Path(__file__).parents[3] / "docs" / "reference" / "presets.md").read_text()
    assert TEST_DIGESTS[shift_px] in docs


def test_a_network_of_another_size_is_scored_on_the_same_pairs(
    squares: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits and shifts are the published ones, in larger squares; others are still refused."""
    monkeypatch.setattr("training.data.pairs.PUBLISHED_PAIRS", 7)
    published = fixed_pairs(squares, 7, size=36, shift_px=4, seed=TEST_SEED)
    monkeypatch.setitem(TEST_DIGESTS, 4, digest(published))
    larger = published_pairs(squares, size=40, shift_px=4)
    np.testing.assert_array_equal(published.labels, larger.labels)
    np.testing.assert_array_equal(published.images, larger.images[:, :, 2:-2, 2:-2])
    monkeypatch.setitem(TEST_DIGESTS, 4, digest(larger))
    with pytest.raises(DatasetError, match="not the published ones"):
        published_pairs(squares, size=40, shift_px=4)
