from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from model.capsnet import build
from tests.training.runs import MakeTrainer, metrics
from training.answers import error_percent
from training.data.datasets import Examples
from training.data.pairs import validation_pairs
from training.losses import margin_loss
from training.recipes import Recipe
from training.tasks import Pairs, Single

CPU = torch.device("cpu")
STEP = torch.tensor(0.0)


@pytest.fixture
def pairs_of_bars(tiny: Recipe) -> Recipe:
    """Pairs of bars on 36x36 pixels."""
    network = replace(tiny.network, height=36, width=36)
    return replace(tiny, task="pairs", network=network, epochs=0.004, shift_px=4)


@pytest.mark.parametrize("name", ["tiny_baseline", "tiny_attention"])
def test_another_network_learns(
    make_trainer: MakeTrainer, bars: Examples, request: pytest.FixtureRequest, name: str
) -> None:
    """After some epochs it tells the bars apart, with dropout or batch normalisation."""
    trainer = make_trainer(recipe=replace(request.getfixturevalue(name), epochs=20))
    trainer.run()
    assert 0 == error_percent(trainer.network, bars, CPU)


def test_the_loss_is_the_recipes(bars: Examples, tiny: Recipe, tiny_baseline: Recipe) -> None:
    """Its name is that of the term; a network without poses is not asked to draw."""
    for recipe, terms in (
        (replace(tiny, loss="margin"), ["margin", "reconstruction"]),
        (replace(tiny, loss="spread"), ["spread", "reconstruction"]),
        (tiny_baseline, ["cross-entropy"]),
    ):
        task = Single(recipe, bars, seed=1, device=CPU)
        assert terms == list(task.losses(build(recipe.network), task.batches.rows(0), STEP))


@pytest.mark.parametrize("detach", [False, True])
def test_the_decoders_gradient_may_stop(bars: Examples, tiny: Recipe, *, detach: bool) -> None:
    """With detached poses, drawing teaches the encoder nothing."""
    task = Single(replace(tiny, detach_poses=detach), bars, seed=1, device=CPU)
    network = build(tiny.network)
    task.losses(network, task.batches.rows(0), STEP)["reconstruction"].backward()
    reached = network.get_parameter("votes.weight").grad is not None
    assert (not detach) == reached


def test_a_share_of_the_batch_is_reconstructed(bars: Examples, tiny: Recipe) -> None:
    """Its first images, of which at least one; the loss is theirs alone."""
    network = build(tiny.network)
    losses = {}
    for share in (1e-9, 0.5, 1.0):
        task = Single(replace(tiny, reconstruction_share=share), bars, seed=1, device=CPU)
        rows = task.batches.rows(0)
        losses[share] = task.losses(network, rows, STEP)["reconstruction"]
    whole = Single(tiny, bars, seed=1, device=CPU)
    for share, count in ((1e-9, 1), (0.5, math.ceil(len(rows) / 2))):
        expected = whole.losses(network, rows[:count], STEP)["reconstruction"]
        torch.testing.assert_close(expected, losses[share])
    assert losses[0.5] != losses[1.0]


def test_an_absent_class_may_draw_the_image_too(bars: Examples, tiny: Recipe) -> None:
    """Then each class is decoded with the image as target, and learns from it."""
    task = Single(replace(tiny, rival_share=0.5), bars, seed=1, device=CPU)
    network = build(tiny.network)
    images, _, labels = task.batches.batch(0)
    losses = task.losses(network, task.batches.rows(0), STEP)
    poses = network(images).poses
    errors = torch.stack(
        [
            (network.decode(poses[:, label], torch.full((len(images),), label)) - images)
            .square()
            .mean(dim=(1, 2, 3))
            for label in range(tiny.network.num_classes)
        ],
        dim=1,
    )  # (B, K)
    absent = errors.scatter(1, labels, torch.inf)
    most = errors.scatter(1, labels, 0.0).amax(dim=1).mean()
    assert absent.amin(dim=1).mean() <= losses["rival_reconstruction"] <= most


def test_cross_entropy_helps_the_margin_loss(bars: Examples, tiny_attention: Recipe) -> None:
    """It goes on where the margin loss of an image is zero."""
    recipe = replace(tiny_attention, cross_entropy_weight=0.1, label_smoothing=0.1)
    task = Single(recipe, bars, seed=1, device=CPU)
    losses = task.losses(build(recipe.network), task.batches.rows(0), STEP)
    assert {"margin", "norm_cross_entropy", "reconstruction"} == losses.keys()
    assert losses["norm_cross_entropy"].requires_grad


def test_the_decoder_may_be_trained_in_bfloat16(bars: Examples, tiny: Recipe) -> None:
    """Its loss stays float32 and close; its weights get gradients."""
    network = build(tiny.network)
    losses = []
    for precision in ("float32", "bfloat16"):
        task = Single(replace(tiny, decoder=precision), bars, seed=1, device=CPU)
        losses.append(task.losses(network, task.batches.rows(0), STEP)["reconstruction"])
    assert torch.float32 == losses[1].dtype
    torch.testing.assert_close(*losses, rtol=0.02, atol=0)
    losses[1].backward()
    assert network.get_parameter("decoder.pixels.weight").grad is not None


@pytest.mark.parametrize(
    "change", [{"flip": True}, {"erase_px": 9}, {"pad": "reflect"}, {"affine": 1}], ids=str
)
def test_a_recipe_decides_the_augmentation(
    bars: Examples, tiny: Recipe, change: dict[str, Any]
) -> None:
    """Each of its settings changes the batch."""
    images = bars.images.copy()
    images[..., :9] = 255  # so that a bar is not its own mirror image, and touches an edge
    batches = [
        Single(recipe, Examples(images, bars.labels), seed=1, device=CPU).batches.batch(0).images
        for recipe in (replace(tiny, shift_px=3), replace(tiny, shift_px=3, **change))
    ]
    assert not torch.equal(*batches)


def test_two_classes_are_present_and_drawn_apart(bars: Examples, pairs_of_bars: Recipe) -> None:
    """Each of the two capsules is decoded alone and compared with its own layer."""
    task = Pairs(pairs_of_bars, bars, seed=1, device=CPU)
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


def test_pairs_without_reconstruction(bars: Examples, pairs_of_bars: Recipe) -> None:
    """Where reconstruction has no weight, it is not computed."""
    task = Pairs(replace(pairs_of_bars, mse_weight=0), bars, seed=1, device=CPU)
    assert ["margin"] == list(task.losses(build(pairs_of_bars.network), task.batches.rows(0), STEP))


def test_training_on_pairs_learns(make_trainer: MakeTrainer, pairs_of_bars: Recipe) -> None:
    """Within 50 steps the margin loss falls."""
    trainer = make_trainer(recipe=pairs_of_bars)
    margins = [trainer.step()["margin"].item() for _ in range(trainer.total_steps)]
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


def test_validation_pairs_are_the_same_each_time(
    pairs_of_bars: Recipe, bars: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the seed of the run nor what was trained on matters."""
    monkeypatch.setattr("training.data.pairs.VALIDATION_PAIRS", 60)
    network = build(pairs_of_bars.network)
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
    states = (trainer.network.state_dict() for trainer in (through, resumed))
    torch.testing.assert_close(*states, rtol=0, atol=0)
