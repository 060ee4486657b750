from __future__ import annotations

import math

import pytest
import torch

from model.capsnet.baseline import BaselineConfig
from training.losses import (
    classification_loss,
    margin_loss,
)
from training.recipes import Recipe


@pytest.mark.parametrize(
    ("lengths", "present", "expected"),
    [
        pytest.param([[0.8, 0.3, 0.05]], [[1, 0, 0]], 0.1**2 + 0.5 * 0.2**2, id="one class"),
        pytest.param(
            [[0.5, 0.7, 0.4]], [[1, 1, 0]], 0.4**2 + 0.2**2 + 0.5 * 0.3**2, id="two classes"
        ),
        pytest.param([[0.5, 0.3, 0.1]], [[0, 0, 0]], 0.5 * 0.4**2 + 0.5 * 0.2**2, id="no class"),
        pytest.param([[0.95, 0.05]], [[1, 0]], 0, id="beyond the margins"),
        pytest.param([[0.8, 0.3], [0.1, 0.8]], [[1, 0], [0, 1]], 0.02, id="mean of 0.03 and 0.01"),
    ],
)
def test_margin_loss(lengths: list[list[float]], present: list[list[int]], expected: float) -> None:
    """Squared hinges on the lengths, absent classes at half weight: a sum, averaged over images."""
    actual = margin_loss(torch.tensor(lengths), torch.tensor(present, dtype=torch.float32))
    assert expected == pytest.approx(actual.item(), rel=1e-5, abs=0)


@pytest.mark.parametrize(
    ("recipe", "activations", "step", "expected"),
    [
        pytest.param(
            Recipe("r", loss="spread", spread_steps=70),
            [0.6, 0.4],
            280,
            (0.595 - 0.2) ** 2,
            id="in how many steps the margin rises",
        ),
        pytest.param(
            Recipe("r", loss="margin", absent_weight=0.25),
            [0.9, 0.3],
            0,
            0.25 * 0.2**2,
            id="what absent classes weigh",
        ),
        pytest.param(  # with sigmoids it learns that others are absent, also of one label
            Recipe("r", network=BaselineConfig(multi_label=True), loss="cross-entropy"),
            [0.0, 5.0],
            0,
            math.log(2) + math.log1p(math.exp(5)),
            id="whether several classes are present",
        ),
        pytest.param(
            Recipe("r", network=BaselineConfig(), loss="cross-entropy"),
            [math.log(0.5), math.log(0.3)],
            0,
            math.log(0.8 / 0.5),
            id="exclusive classes",
        ),
    ],
)
def test_the_recipe_decides_the_loss(
    recipe: Recipe, activations: list[float], step: int, expected: float
) -> None:
    """Of an image that shows the first of two classes."""
    scores, present = torch.tensor([activations]), torch.tensor([[1.0, 0.0]])
    loss = classification_loss(recipe, scores, present, torch.tensor(float(step)))
    assert pytest.approx(expected, rel=1e-5) == loss.item()
