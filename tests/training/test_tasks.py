from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.capsnet import build
from tests.training.runs import MakeTrainer, metrics
from training.data.datasets import Examples
from training.data.pairs import validation_pairs
from training.losses import margin_loss
from training.recipes import Recipe
from training.tasks import Task

CPU = torch.device("cpu")
STEP = torch.tensor(0.0)


@pytest.fixture
def pairs_of_bars(tiny: Recipe) -> Recipe:
    """Pairs of bars on 36x36 pixels."""
    network = replace(tiny.network, height=36, width=36)
    return replace(tiny, task="pairs", network=network, epochs=0.004, shift_px=4)


@pytest.mark.parametrize("detach", [False, True])
def test_the_decoders_gradient_may_stop(bars: Examples, tiny: Recipe, *, detach: bool) -> None:
    """With detached poses, drawing teaches the encoder nothing."""
    task = Task(replace(tiny, detach_poses=detach), bars, seed=1, device=CPU)
    network = build(tiny.network)
    task.losses(network, task.batches.rows(0), STEP)["reconstruction"].backward()
    reached = network.get_parameter("votes.weight").grad is not None
    assert (not detach) == reached


def test_a_share_of_the_batch_is_reconstructed(bars: Examples, tiny: Recipe) -> None:
    """Its first images, of which at least one; the loss is theirs alone."""
    network = build(tiny.network)
    losses = {}
    for share in (1e-9, 0.5, 1.0):
        task = Task(replace(tiny, reconstruction_share=share), bars, seed=1, device=CPU)
        rows = task.batches.rows(0)
        losses[share] = task.losses(network, rows, STEP)["reconstruction"]
    whole = Task(tiny, bars, seed=1, device=CPU)
    for share, count in ((1e-9, 1), (0.5, math.ceil(len(rows) / 2))):
        expected = whole.losses(network, rows[:count], STEP)["reconstruction"]
        torch.testing.assert_close(expected, losses[share])
    assert losses[0.5] != losses[1.0]


def test_two_classes_are_present_and_drawn_apart(bars: Examples, pairs_of_bars: Recipe) -> None:
    """Each of the two capsules is decoded alone and compared with its own layer."""
    task = Task(pairs_of_bars, bars, seed=1, device=CPU)
    network = build(pairs_of_bars.network)
    images, layers, labels = task.batches.batch(5)
    presence, poses = network(images)
    present = torch.zeros(8, 3)
    error = torch.zeros(())
    for row, both in enumerate(labels.tolist()):
        for place, label in enumerate(both):
            present[row, label] = 1
            drawn = network.decode(poses[row, label][None], torch.tensor([label]))
            error = error + (drawn[0, 0] - layers[row, place]).square().mean() / 8
    losses = task.losses(network, task.batches.rows(5), STEP)
    torch.testing.assert_close(margin_loss(presence, present), losses["margin"])
    torch.testing.assert_close(error, losses["reconstruction"])


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
    last = metrics(trainer)[-1]
    pairs = validation_pairs(bars, size=36, shift_px=pairs_of_bars.shift_px)
    with torch.no_grad():
        presence, _ = trainer.network(torch.tensor(pairs.images).float() / 255)
    named = [set(row) for row in presence.topk(2).indices.tolist()]
    labels = [set(row) for row in pairs.labels.tolist()]
    missed = [len(wanted - found) for wanted, found in zip(labels, named, strict=True)]
    expected = (100 * np.mean([count > 0 for count in missed]), 100 * np.mean(missed) / 2)
    actual = (last["validation_error_percent"], last["validation_digit_error_percent"])
    assert pytest.approx(expected) == actual
