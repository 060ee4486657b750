"""How fast recipes train on a device, and what follows: batch size, precision and budgets."""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from model.capsnet.attention import AttentionConfig
from model.capsnet.dynamic import DynamicConfig
from training.data.datasets import HELD_OUT, Examples
from training.recipes import PRESETS, Precision, Recipe, override
from training.state import Plan
from training.trainer import Trainer

MOST_EPOCHS = {"single": 640.0, "pairs": 600.0}
"""By task those of Sabour 2017: 300,000 steps of 128 images, and 60 million pairs."""
SHARES = {"single": 3, "pairs": 11}
"""By task, how much time a run gets relative to others."""
_IMAGES = 10_000
_WARM_UP_STEPS = 3


def list_options(recipe: Recipe) -> list[str]:
    """Settings to choose among, each `KEY=VALUE KEY=VALUE`; first the recipe's own batch."""
    sizes = [recipe.batch_size * factor for factor in (1, 2, 4)]
    rounds = isinstance(recipe.network, DynamicConfig | AttentionConfig)
    precisions = get_args(Precision) if rounds else ["float32"]
    return [f"batch_size={size} votes={votes}" for size in sizes for votes in precisions]


def measure_options(recipe: Recipe, device: torch.device, *, seconds: float) -> dict[str, float]:
    """Images (or pairs) a second by option, without those that need more memory than there is.

    Args:
        seconds: for each option, after its first steps.
    """
    rates, noise = {}, draw_noise(recipe)
    for option in list_options(recipe):
        changed = override(recipe, option.split())
        try:
            rates[option] = measure(changed, noise, device, seconds=seconds)
        except torch.OutOfMemoryError:
            continue
        finally:
            gc.collect()  # a trainer and its CUDA graph refer to each other
            torch.cuda.empty_cache()
    return rates


def measure(recipe: Recipe, examples: Examples, device: torch.device, *, seconds: float) -> float:
    """Images (or pairs) a second of training steps."""
    at_once = 10 if device.type == "cuda" else 1  # a GPU computes while the CPU launches more
    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(Plan(recipe, 0, examples, None, Path(scratch)), device=device)
        for _ in range(_WARM_UP_STEPS):
            trainer.step()
        start, steps, elapsed = _now(device), 0, 0.0
        while elapsed <= seconds:
            for _ in range(at_once):
                trainer.step()
            steps += at_once
            elapsed = _now(device) - start
    return steps * recipe.batch_size / elapsed


def draw_noise(recipe: Recipe) -> Examples:
    """Sparse noise of the recipe's size and classes; pairs are made of images of 28 pixels."""
    network = recipe.network
    size = (28, 28) if recipe.task == "pairs" else (network.height, network.width)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (_IMAGES, network.channels, *size), dtype=np.uint8)
    images[rng.random(images.shape) < 0.8] = 0
    return Examples(images, rng.integers(0, network.num_classes, _IMAGES))


def choose_fast(rates: Mapping[str, float]) -> str:
    """The first option that is at most a tenth slower than the fastest."""
    return next(option for option, rate in rates.items() if rate >= 0.9 * max(rates.values()))


def is_worse(error_percent: float, other_percent: float) -> bool:
    """Whether an error on held-out images is larger than another by more than chance explains."""
    wrong, other = error_percent / 100, other_percent / 100
    deviation = math.sqrt((wrong * (1 - wrong) + other * (1 - other)) / HELD_OUT)
    return wrong - other > 2 * deviation


def set_budgets(
    counts: Mapping[str, int], speeds: Mapping[str, float], *, seconds: float
) -> dict[str, float]:
    """Epochs of each preset's runs, which together take so many seconds.

    What a preset does not need, as its runs reach MOST_EPOCHS, the later ones get.

    Args:
        counts: runs of each preset.
        speeds: epochs a second.
    """
    budgets: dict[str, float] = {}
    shares = {name: SHARES[PRESETS[name].task] for name in counts}
    for name, count in counts.items():
        open_shares = sum(counts[one] * shares[one] for one in counts if one not in budgets)
        wanted = speeds[name] * max(seconds, 0) * shares[name] / open_shares
        budgets[name] = round_up(min(wanted, MOST_EPOCHS[PRESETS[name].task]))
        seconds -= count * budgets[name] / speeds[name]
    return budgets


def round_up(epochs: float) -> float:
    """To a hundredth of an epoch, and at least to one."""
    return max(math.ceil(100 * epochs), 1) / 100


def _now(device: torch.device) -> float:
    """Seconds, when the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
