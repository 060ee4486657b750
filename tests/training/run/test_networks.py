from __future__ import annotations

from collections.abc import Callable

from model.capsnet import CapsNet
from training.baseline import Baseline
from training.recipes import Recipe
from training.run.trainer import Trainer

MakeTrainer = Callable[..., Trainer]


def test_the_recipe_decides_which_network_is_trained(
    make_trainer: MakeTrainer, tiny_baseline: Recipe
) -> None:
    """Capsules, unless it names a baseline."""
    assert isinstance(make_trainer("capsules").network, CapsNet)
    assert isinstance(make_trainer("baseline", recipe=tiny_baseline).network, Baseline)
