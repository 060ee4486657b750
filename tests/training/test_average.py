from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import Tensor

from training.checkpoint import Checkpoint
from training.datasets import Examples
from training.evaluation import error_percent
from training.plan import CHECKPOINT, METRICS
from training.recipes import Recipe
from training.trainer import Trainer

MakeTrainer = Callable[..., Trainer]
DECAY = 0.7


@pytest.fixture
def averaged(tiny: Recipe) -> Recipe:
    """The tiny recipe with an average over a few steps."""
    return replace(tiny, average_decay=DECAY)


def saved(trainer: Trainer) -> Checkpoint:
    """The run's checkpoint."""
    return Checkpoint.load(trainer.plan.directory / CHECKPOINT)


def test_the_running_average_is_saved(make_trainer: MakeTrainer, averaged: Recipe) -> None:
    """After the first step it is the weights; each further one moves it by 1 - decay of the way."""
    trainer = make_trainer(recipe=averaged)
    expected: Tensor | None = None
    for _ in range(5):
        trainer.step()
        weight = trainer.network.classes.weight.detach().clone()
        expected = weight if expected is None else DECAY * expected + (1 - DECAY) * weight
    trainer.save()
    torch.testing.assert_close(expected, saved(trainer).network["classes.weight"])
    torch.testing.assert_close(weight, saved(trainer).trained["classes.weight"])


def test_averaging_does_not_change_the_training(
    make_trainer: MakeTrainer, tiny: Recipe, averaged: Recipe
) -> None:
    """The weights below the average are those of a run without one."""
    plain, trainer = make_trainer("plain", recipe=tiny), make_trainer(recipe=averaged)
    plain.run()
    trainer.run()
    torch.testing.assert_close(
        list(plain.network.parameters()), list(trainer.network.parameters()), rtol=0, atol=0
    )


def test_a_resumed_average_goes_on(make_trainer: MakeTrainer, averaged: Recipe) -> None:
    """Stopped and continued, or run through: the same average."""
    through = make_trainer("through", recipe=averaged)
    through.run()
    make_trainer(recipe=averaged).run(max_minutes=2.5, clock=count(step=60.0).__next__)
    resumed = make_trainer(recipe=averaged, resume=True)
    resumed.run()
    torch.testing.assert_close(saved(through).network, saved(resumed).network, rtol=0, atol=0)


def test_the_average_is_validated(
    make_trainer: MakeTrainer, averaged: Recipe, bars: Examples
) -> None:
    """The last line's error is that of the saved weights, not of those last trained."""
    trainer = make_trainer(
        recipe=replace(averaged, average_decay=0.999, epochs=10), validation=bars
    )
    trainer.run()
    line = (trainer.plan.directory / METRICS).read_text().splitlines()[-1]
    trained = error_percent(trainer.network, bars, device=torch.device("cpu"))
    trainer.network.load_state_dict(saved(trainer).network)
    expected = error_percent(trainer.network, bars, device=torch.device("cpu"))
    assert expected == json.loads(line)["validation_error_percent"] != trained


def test_the_average_starts_from_transferred_weights(
    make_trainer: MakeTrainer, tiny: Recipe, averaged: Recipe
) -> None:
    """Saved before its first step, a run has the weights that it started from."""
    first = make_trainer("first", recipe=tiny)
    first.run()
    trainer = make_trainer("second", recipe=averaged)
    trainer.state.start_from(saved(first))
    trainer.save()
    torch.testing.assert_close(saved(first).network, saved(trainer).network, rtol=0, atol=0)
