"""How the learning rate changes over a run."""

from __future__ import annotations

import math

from training.recipes import Recipe


def learning_rate(recipe: Recipe, step: int, *, total: int) -> float:
    """Adam's rate at a step of a run of `total` steps."""
    warmup = min(1.0, (step + 1) / recipe.warmup_steps) if recipe.warmup_steps else 1.0
    if recipe.schedule == "exponential":
        decay = math.pow(recipe.decay_rate, step / recipe.decay_steps)
    else:
        decay = 0.5 * (1 + math.cos(math.pi * step / total))
    return recipe.learning_rate * warmup * decay
