from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from tests.training.runs import MakeTrainer
from training.data.datasets import Examples
from training.recipes import Recipe
from training.state import CHECKPOINT, Checkpoint
from training.trainer import Trainer

CPU = torch.device("cpu")
VOTES = "votes.weight"


@pytest.fixture
def averaged(tiny: Recipe) -> Recipe:
    """The tiny recipe with an average over some steps."""
    return replace(tiny, average_decay=0.7)


def saved(trainer: Trainer) -> Checkpoint:
    """The run's checkpoint."""
    return Checkpoint.load(trainer.plan.directory / CHECKPOINT)


@pytest.mark.parametrize(
    ("decay", "shares"),
    [(0.05, [1, 0.95, 0.95, 0.95, 0.95]), (0.999, [1, 10 / 11, 10 / 12, 10 / 13, 10 / 14])],
)
def test_the_running_average_is_saved(
    make_trainer: MakeTrainer, tiny: Recipe, decay: float, shares: list[float]
) -> None:
    """Each step's weights have their share in it, more than the decay leaves in the beginning."""
    trainer = make_trainer(recipe=replace(tiny, average_decay=decay))
    expected = torch.zeros_like(trainer.network.get_parameter(VOTES))
    for share in shares:
        trainer.step()
        expected = (1 - share) * expected + share * trainer.network.get_parameter(VOTES).detach()
    trainer.save()
    torch.testing.assert_close(expected, saved(trainer).network[VOTES])


def test_statistics_are_those_of_the_averaged_weights(
    make_trainer: MakeTrainer, tiny_attention: Recipe, bars: Examples
) -> None:
    """Batch normalisation of what is validated and saved knows what its own layers give."""
    recipe = replace(tiny_attention, average_decay=0.7)
    trainer = make_trainer(recipe=recipe, validation=bars)
    trainer.run()
    images = trainer.task.batches.make(
        torch.cat([trainer.task.batches.rows(step) for step in range(trainer.done_steps)])
    ).images
    averaged = deepcopy(trainer.state.result)
    norms = [one for one in averaged.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    given = []
    for norm in norms:
        norm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with torch.no_grad():
        averaged(images)
    raw = [one for one in trainer.network.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    assert norms
    first, own, other = given[0], norms[0].running_mean, raw[0].running_mean
    torch.testing.assert_close(first.mean(dim=(0, 2, 3)), own, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(own, other, rtol=1e-3)
    assert torch.equal(own, saved(trainer).network[_name_of(averaged, norms[0])])


def _name_of(network: torch.nn.Module, norm: torch.nn.Module) -> str:
    (name,) = (name for name, module in network.named_modules() if module is norm)
    return f"{name}.running_mean"


def test_frozen_parts_keep_their_statistics(
    make_trainer: MakeTrainer, tiny_attention: Recipe
) -> None:
    """Those of the average, too."""
    trainer = make_trainer(recipe=replace(tiny_attention, average_decay=0.7, frozen=("stem.",)))
    before = [buffer.clone() for buffer in trainer.state.result.buffers()]
    trainer.run()
    torch.testing.assert_close(before, list(trainer.state.result.buffers()), rtol=0, atol=0)


def test_the_average_starts_from_transferred_weights(
    make_trainer: MakeTrainer, tiny: Recipe, averaged: Recipe
) -> None:
    """Saved before its first step, a run has the weights that it started from."""
    first = make_trainer("first", recipe=tiny)
    first.run()
    trainer = make_trainer("second", seed=2, recipe=averaged)
    trainer.state.start_from(saved(first))
    trainer.save()
    torch.testing.assert_close(saved(first).network, saved(trainer).network, rtol=0, atol=0)
