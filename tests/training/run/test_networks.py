from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model.capsnet import CapsNet
from training.baseline import Baseline, BaselineConfig
from training.data.datasets import Examples
from training.evaluation.answers import error_percent
from training.recipes import Recipe
from training.run.plan import Plan
from training.run.trainer import Trainer
from training.tasks.task import BaselineDigits, BaselinePairs

CPU = torch.device("cpu")


@pytest.fixture
def recipe(tiny: Recipe) -> Recipe:
    """A small baseline for the bars."""
    baseline = BaselineConfig(channels=(4,), kernels=(5,), pooling=True, hidden=(12, 8))
    return replace(tiny, baseline=baseline, reconstruction="none")


def begin(recipe: Recipe, bars: Examples, directory: Path, *, resume: bool = False) -> Trainer:
    return Trainer(Plan(recipe, 1, bars, None, directory), device=CPU, resume=resume)


def test_the_recipe_decides_which_network_is_trained(
    tiny: Recipe, recipe: Recipe, bars: Examples, tmp_path: Path
) -> None:
    """Capsules, unless it names a baseline."""
    assert isinstance(begin(tiny, bars, tmp_path / "capsules").network, CapsNet)
    assert isinstance(begin(recipe, bars, tmp_path / "baseline").network, Baseline)


def test_a_baseline_learns(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """After sixteen epochs it tells the bars apart."""
    trainer = begin(replace(recipe, epochs=16), bars, tmp_path)
    trainer.run()
    assert 0 == error_percent(trainer.network, bars, device=CPU)


def test_a_baseline_learns_pairs(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """Within 50 steps the loss of pairs falls."""
    network = replace(recipe.network, image_size=36)
    pairs = replace(recipe, task="pairs", network=network, epochs=0.004, shift_px=4)
    trainer = begin(pairs, bars, tmp_path)
    losses = [trainer.step()[0].item() for _ in range(trainer.total_steps)]
    assert isinstance(trainer.task, BaselinePairs)
    assert 0.8 * losses[0] > np.mean(losses[-5:])


def test_a_resumed_run_ends_in_the_same_weights(
    recipe: Recipe, bars: Examples, tmp_path: Path
) -> None:
    """Stopped and continued, or run through: the same network, dropout included."""
    through = begin(recipe, bars, tmp_path / "through")
    through.run()
    stopped = begin(recipe, bars, tmp_path / "stopped")
    stopped.step()
    stopped.save()
    resumed = begin(recipe, bars, tmp_path / "stopped", resume=True)
    assert 1 == resumed.done_steps
    resumed.run()
    for name, weight in through.network.state_dict().items():
        assert torch.equal(weight, resumed.network.state_dict()[name])


def test_each_step_leaves_out_other_outputs(recipe: Recipe, bars: Examples) -> None:
    """About half of them, the rest counting double; the same again for the same step."""
    assert recipe.baseline is not None
    wide = replace(recipe, baseline=replace(recipe.baseline, hidden=(500,)))
    task = BaselineDigits(wide, bars, seed=1, device=CPU)
    kept = task._keep(3)
    assert [0.0, 2.0] == kept.unique().tolist()
    assert 1 == pytest.approx(kept.mean().item(), abs=0.1)
    assert torch.equal(kept, task._keep(3))
    assert not torch.equal(kept, task._keep(4))
