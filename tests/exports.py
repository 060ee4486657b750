"""Bundles of untrained and of tiny trained networks, which take torch to export."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model.capsnet import Network, NetworkConfig, build
from model.capsnet.attention import AttentionConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.stem import Conv
from tests.model.capsnet.networks import TINY
from training.data.datasets import DIGITS, Examples
from training.data.pairs import fixed_pairs
from training.export import describe, export_bundle
from training.pair_scores import choose_threshold
from training.recipes import PRESETS, Recipe
from training.state import Plan
from training.trainer import Trainer
from training.training_data import MAX_PX, fit_size

BLOCKS = AttentionConfig(
    channels=3,
    height=24,
    width=32,
    num_classes=3,
    stem=(Conv(8, 5, 2), Conv(16, 5, 2)),
    primary="spatial",
    decoder_hidden=(16, 16),
)
"""Of `blocks`: colour photographs of 24x32 pixels."""
LARGE = fit_size(
    PRESETS["pictures"],
    NetworkConfig(channels=3, height=MAX_PX, width=MAX_PX, num_classes=3),
).network
"""Of `large`: the largest pictures that a folder may have."""
BANDS = fit_size(
    PRESETS["pictures"], NetworkConfig(channels=5, height=20, width=24, num_classes=3)
).network
"""Of `bands`: arrays of five channels."""


def make_untrained(config: NetworkConfig) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(config).eval()


def export(config: NetworkConfig, target: Path, **facts: Any) -> None:
    """Write the bundle of an untrained network, its rounding measured on noise."""
    noise = np.random.default_rng(0).integers(0, 256, (4, *config.image_shape), np.uint8)
    name, validation = target.name, Examples(noise, np.zeros(4, np.int64))
    facts = {"dataset": name, "class_names": DIGITS, "preprocess": "digit", **facts}
    facts["training"] = {"recipe": Recipe(name, network=config).to_dict(), "runs": []}
    network = make_untrained(config)
    export_bundle(network, describe(network, name=name, **facts), target, validation=validation)


def strokes() -> Examples:
    """Three 28x28 images that cross: a horizontal, a vertical and a diagonal stroke."""
    images = np.zeros((3, 1, 28, 28), np.uint8)
    images[0, 0, 12:16, 4:24] = 255
    images[1, 0, 4:24, 12:16] = 255
    for offset in range(-2, 3):
        rows = np.arange(5, 23)
        images[2, 0, rows, rows + offset] = 255
    return Examples(images, np.arange(3))


def train_strokes(target: Path) -> None:
    """Train a network that takes pairs of strokes apart, and write its bundle."""
    examples = strokes()
    network = DynamicConfig(
        height=36,
        width=36,
        stem=(Conv(8, 9, 2),),
        primary_types=4,
        primary_dim=4,
        num_classes=3,
        class_dim=8,
        decoder_hidden=(32, 64),
    )
    recipe = Recipe(
        "strokes",
        dataset="strokes",
        task="pairs",
        network=network,
        epochs=0.04,
        batch_size=16,
        learning_rate=5e-3,
        mse_weight=12.96,
    )
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        plan = Plan(recipe, 1, examples, None, Path(folder))
        trainer = Trainer(plan, device=torch.device("cpu"))
        for _ in range(trainer.total_steps):
            trainer.step()
    pairs = fixed_pairs(examples, 50, size=36, shift_px=2, seed=1)
    manifest = describe(
        trainer.network,
        name="strokes",
        dataset="strokes",
        class_names=("horizontal", "vertical", "diagonal"),
        preprocess="pair",
        mask_threshold=choose_threshold(trainer.network, pairs),
        training={"recipe": recipe.to_dict(), "runs": []},
    )
    export_bundle(trainer.network, manifest, target, validation=pairs)


_COLOURS = {"class_names": ("red", "green", "blue"), "preprocess": "crop"}
_SIZED = {"blocks": BLOCKS, "large": LARGE, "bands": BANDS}
EXPORTS: dict[str, Callable[[Path], object]] = {
    "mnist": partial(export, TINY["dynamic"]),
    "tiny-matrix": partial(export, TINY["matrix"]),
    "strokes": train_strokes,
    **{name: partial(export, config, **_COLOURS) for name, config in _SIZED.items()},
    **{
        f"tiny-{name}": partial(export, TINY[name])
        for name in TINY
        if name not in {"dynamic", "matrix"}
    },
}
"""What writes each bundle of the tests; most of them wait for `mnist`."""
