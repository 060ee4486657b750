from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from training.data.datasets import Examples
from training.evaluation.answers import error_percent
from training.recipes import Recipe
from training.run.trainer import Trainer
from training.tasks.digits import BaselineDigits

CPU = torch.device("cpu")
MakeTrainer = Callable[..., Trainer]


def test_a_baseline_learns(
    make_trainer: MakeTrainer, tiny_baseline: Recipe, bars: Examples
) -> None:
    """After sixteen epochs it tells the bars apart."""
    trainer = make_trainer(recipe=replace(tiny_baseline, epochs=16))
    trainer.run()
    assert 0 == error_percent(trainer.network, bars, device=CPU)


def test_a_resumed_run_of_a_baseline_ends_in_the_same_weights(
    make_trainer: MakeTrainer, tiny_baseline: Recipe
) -> None:
    """Stopped and continued, or run through: the same network, dropout included."""
    through = make_trainer("through", recipe=tiny_baseline)
    through.run()
    stopped = make_trainer("stopped", recipe=tiny_baseline)
    stopped.step()
    stopped.save()
    resumed = make_trainer("stopped", recipe=tiny_baseline, resume=True)
    assert 1 == resumed.done_steps
    resumed.run()
    for name, weight in through.network.state_dict().items():
        assert torch.equal(weight, resumed.network.state_dict()[name])


def test_each_step_leaves_out_other_outputs(tiny_baseline: Recipe, bars: Examples) -> None:
    """About half of them, the rest counting double; the same again for the same step."""
    assert tiny_baseline.baseline is not None
    wide = replace(tiny_baseline, baseline=replace(tiny_baseline.baseline, hidden=(500,)))
    task = BaselineDigits(wide, bars, seed=1, device=CPU)
    kept = task._keep(3)
    assert [0.0, 2.0] == kept.unique().tolist()
    assert 1 == pytest.approx(kept.mean().item(), abs=0.1)
    assert torch.equal(kept, task._keep(3))
    assert not torch.equal(kept, task._keep(4))
