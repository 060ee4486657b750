"""`python -m training` with a preset that takes milliseconds a step, for tests of processes."""

from __future__ import annotations

import os

import numpy as np

from model.capsnet import CapsNetConfig
from training import __main__
from training.data.datasets import Examples
from training.recipes import PRESETS, Recipe

SIZES = CapsNetConfig(
    conv_channels=2,
    primary_types=1,
    primary_dim=4,
    num_classes=3,
    class_dim=4,
    decoder_hidden=(8, 8),
)
TINY = Recipe("tiny", network=SIZES, epochs=10_000, batch_size=7, learning_rate=5e-3)
"""Never over while a test waits; a batch is not divided evenly by two."""


def draw_noise(*_: object) -> Examples:
    """24 images of three classes."""
    images = np.random.default_rng(0).integers(0, 256, (24, 28, 28), dtype=np.uint8)
    return Examples(images, np.arange(24, dtype=np.uint8) % 3)


if __name__ == "__main__":
    print(f"rank {os.environ['RANK']} is {os.getpid()}", flush=True)
    PRESETS[TINY.name] = TINY
    __main__.load = draw_noise  # type: ignore[assignment]
    __main__.main()
