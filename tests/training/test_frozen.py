"""A frozen pretrained stem computes each view of an image once, and gives the same features."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch

from model.capsnet import build
from model.capsnet.attention import AttentionConfig
from model.capsnet.stem import Conv, Pretrained
from training.data.augment import BatchStream
from training.data.datasets import Examples
from training.frozen import FeatureMemory, remember_features
from training.recipes import Recipe

CPU = torch.device("cpu")


def frozen_network() -> torch.nn.Module:
    """A network with a pretrained stem of random weights, which are not trained."""
    stem = (Pretrained("mobilenet-v2"), Conv(16, 1, activation="none"))
    config = AttentionConfig(
        channels=3, height=96, width=96, num_classes=2, stem=stem, primary="spatial"
    )
    network = build(config).eval()
    network.get_submodule("stem.0").requires_grad_(False)
    return network


def test_features_are_the_same_and_computed_once() -> None:
    """By a network and its running average together; a full memory computes the rest again."""
    network = frozen_network()
    average, images = deepcopy(network), torch.randint(0, 256, (3, 3, 96, 96)) / 255
    stem = network.get_submodule("stem.0")
    expected, calls = stem(images), []
    stem.register_module("last", stem.last)
    stem.last.register_forward_hook(lambda *_: calls.append(1))
    remember_features(network, average)  # type: ignore[arg-type]
    for own in (stem, average.get_submodule("stem.0"), stem):
        torch.testing.assert_close(own(images), expected)
    torch.testing.assert_close(stem(images.flip(0)), expected.flip(0))
    assert 1 == len(calls)
    small = FeatureMemory(frozen_network().get_submodule("stem.0"), limit_bytes=0)  # type: ignore[arg-type]
    torch.testing.assert_close(small(images), small(images))


def test_views_repeat() -> None:
    """Epochs with the same view have the same images in another order; other views differ."""
    images = np.random.default_rng(1).integers(0, 256, (20, 3, 12, 12), np.uint8)
    recipe = Recipe("r", batch_size=20, views=2, flip=True, cutout_px=3)
    stream = BatchStream(Examples(images, np.arange(20)), recipe, seed=1, device=CPU)
    epochs = []
    for epoch in range(3):
        batch = stream.batch(epoch)
        epochs.append(batch.images[batch.labels[:, 0].argsort()])
    torch.testing.assert_close(epochs[0], epochs[2])
    assert (epochs[0] != epochs[1]).any()
    assert (stream.batch(0).labels != stream.batch(2).labels).any()
