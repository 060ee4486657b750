"""Three drawn classes, and networks small enough to be trained on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.capsnet import Network
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.stem import Conv
from tests import exports  # noqa: F401  with it, torch parses its operators once
from tests.training.published import say_training, write_toys
from training.data.datasets import DATASETS, Examples
from training.recipes import Recipe
from training.state import Plan
from training.trainer import Trainer


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the toys, published for once; there are few images of other kinds."""
    monkeypatch.setattr("training.novelty.COUNT", 5)
    monkeypatch.setitem(DATASETS, "toys", write_toys(tmp_path))
    return tmp_path


@pytest.fixture
def bundle(bundle_path: Path, data_dir: Path) -> Bundle:
    """A bundle that learnt the toys and was neither evaluated nor analysed."""
    return say_training(bundle_path, data_dir / "bundles" / "mnist")


@pytest.fixture(scope="session")
def bars() -> Examples:
    """24 images of a bright bar in one of three places, which is the class."""
    labels = np.arange(24) % 3
    images = np.zeros((24, 1, 28, 28), np.uint8)
    for image, label in zip(images, labels, strict=True):
        top = 4 + 8 * int(label)
        image[:, top : top + 4, 4:24] = 255
    return Examples(images, labels)


@pytest.fixture(scope="session")
def tiny() -> Recipe:
    """Two epochs of three steps each."""
    network = DynamicConfig(
        stem=(Conv(4, 9),),
        primary_types=2,
        primary_dim=4,
        num_classes=3,
        class_dim=4,
        decoder_hidden=(8, 8),
    )
    return Recipe("tiny", network=network, epochs=2, batch_size=8, learning_rate=5e-3)


@pytest.fixture(scope="session")
def tiny_baseline(tiny: Recipe) -> Recipe:
    """A small CNN with dropout for the bars."""
    network = BaselineConfig(
        num_classes=3, convs=(4,), kernels=(5,), pooling=True, hidden=(12, 8), dropout=0.5
    )
    return replace(tiny, network=network, loss="cross-entropy")


@pytest.fixture(scope="session")
def tiny_attention(tiny: Recipe) -> Recipe:
    """A small network with batch normalisation for the bars."""
    network = AttentionConfig(
        num_classes=3,
        class_dim=4,
        decoder_hidden=(8, 8),
        stem=(Conv(4, 5, 2), Conv(8, 3, 2)),
        primary_dim=4,
    )
    return replace(tiny, network=network)


@pytest.fixture
def make_trainer(bars: Examples, tiny: Recipe, tmp_path: Path) -> Callable[..., Trainer]:
    """`make_trainer(directory, ...)` trains on the bars, by default as `tiny` says."""

    def make(
        directory: str = "run",
        *,
        seed: int = 1,
        validation: Examples | None = None,
        recipe: Recipe = tiny,
        **options: Any,
    ) -> Trainer:
        plan = Plan(recipe, seed, bars, validation, tmp_path / directory)
        return Trainer(plan, device=torch.device("cpu"), **options)

    return make


@pytest.fixture(scope="session")
def trained(bars: Examples, tiny: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Network:
    """A network that knows the bars."""
    directory = tmp_path_factory.mktemp("trained")
    plan = Plan(replace(tiny, epochs=8), 1, bars, None, directory)
    trainer = Trainer(plan, device=torch.device("cpu"))
    trainer.run()
    return trainer.network
