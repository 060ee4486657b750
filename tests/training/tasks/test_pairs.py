from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.capsnet import CapsNet
from training.data.datasets import Examples
from training.data.pairs import validation_pairs
from training.recipes import Recipe
from training.run.trainer import Trainer
from training.tasks.losses import margin_loss
from training.tasks.pairs import BaselinePairs, Pairs

CPU = torch.device("cpu")
MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def pairs_of_bars(tiny: Recipe) -> Recipe:
    """Pairs of bars on 36x36 pixels."""
    network = replace(tiny.network, image_size=36)
    return replace(tiny, task="pairs", network=network, epochs=0.004, shift_px=4)


def test_two_classes_are_present_and_drawn_apart(bars: Examples, pairs_of_bars: Recipe) -> None:
    """Each of the two capsules is decoded alone and compared with its own layer."""
    task = Pairs(pairs_of_bars, bars, seed=1, device=CPU)
    network = CapsNet(pairs_of_bars.network)
    images, layers, labels = task.batches.batch(5)
    lengths, poses = network(images)
    present = torch.zeros(8, 3)
    error = torch.zeros(())
    for row, both in enumerate(labels.tolist()):
        for place, label in enumerate(both):
            present[row, label] = 1
            drawn = network.decode(poses[row, label][None], torch.tensor([label]))
            error = error + (drawn[0, 0] - layers[row, place]).square().sum() / 8
    losses = task.losses(network, task.draw(5))
    torch.testing.assert_close(margin_loss(lengths, present), losses.margin)
    torch.testing.assert_close(error, losses.reconstruction)


def test_pairs_without_reconstruction(bars: Examples, pairs_of_bars: Recipe) -> None:
    """Where reconstruction has no weight, it is not computed."""
    task = Pairs(replace(pairs_of_bars, reconstruction="none"), bars, seed=1, device=CPU)
    assert 0 == task.losses(CapsNet(pairs_of_bars.network), task.draw(0)).reconstruction


def test_training_on_pairs_learns(make_trainer: MakeTrainer, pairs_of_bars: Recipe) -> None:
    """Within 50 steps the margin loss falls."""
    trainer = make_trainer(recipe=pairs_of_bars)
    margins = [trainer.step()[0].item() for _ in range(trainer.total_steps)]
    assert 50 == len(margins)
    assert 0.5 * margins[0] > np.mean(margins[-5:])


def test_validation_counts_pairs_and_digits(
    make_trainer: MakeTrainer,
    pairs_of_bars: Recipe,
    bars: Examples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both errors are in the metrics; a pair counts as wrong where either digit is missed."""
    monkeypatch.setattr("training.data.pairs.VALIDATION_PAIRS", 60)
    trainer = make_trainer(recipe=pairs_of_bars, validation=bars)
    trainer.run()
    lines = (trainer.plan.directory / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    pairs = validation_pairs(bars, size=36, shift_px=pairs_of_bars.shift_px)
    with torch.no_grad():
        lengths, _ = trainer.network(torch.tensor(pairs.images)[:, None].float() / 255)
    named = [set(row) for row in lengths.topk(2).indices.tolist()]
    labels = [set(row) for row in pairs.labels.tolist()]
    missed = [len(wanted - found) for wanted, found in zip(labels, named, strict=True)]
    expected = (100 * np.mean([count > 0 for count in missed]), 100 * np.mean(missed) / 2)
    actual = (last["validation_error_percent"], last["validation_digit_error_percent"])
    assert pytest.approx(expected) == actual


def test_validation_pairs_are_the_same_each_time(
    pairs_of_bars: Recipe, bars: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the seed of the run nor what was trained on matters."""
    monkeypatch.setattr("training.data.pairs.VALIDATION_PAIRS", 60)
    network = CapsNet(pairs_of_bars.network)
    few = Examples(bars.images[:12], bars.labels[:12])
    first = Pairs(pairs_of_bars, bars, seed=1, device=CPU).errors(network, bars)
    assert first == Pairs(pairs_of_bars, few, seed=2, device=CPU).errors(network, bars)


def test_a_resumed_run_of_pairs_ends_in_the_same_weights(
    make_trainer: MakeTrainer, pairs_of_bars: Recipe
) -> None:
    """Stopped after ten steps and continued, or run through: the same network."""
    recipe = replace(pairs_of_bars, epochs=0.0016)
    through = make_trainer("through", recipe=recipe)
    through.run()
    stopped = make_trainer("stopped", recipe=recipe)
    for _ in range(10):
        stopped.step()
    stopped.save()
    resumed = make_trainer("stopped", recipe=recipe, resume=True)
    assert 10 == resumed.done_steps
    resumed.run()
    for name, weight in through.network.state_dict().items():
        assert torch.equal(weight, resumed.network.state_dict()[name])


def test_a_baseline_learns_pairs(
    make_trainer: MakeTrainer, pairs_of_bars: Recipe, tiny_baseline: Recipe
) -> None:
    """Within 50 steps the loss falls."""
    recipe = replace(pairs_of_bars, baseline=tiny_baseline.baseline, reconstruction="none")
    trainer = make_trainer(recipe=recipe)
    losses = [trainer.step()[0].item() for _ in range(trainer.total_steps)]
    assert isinstance(trainer.task, BaselinePairs)
    assert 0.8 * losses[0] > np.mean(losses[-5:])
