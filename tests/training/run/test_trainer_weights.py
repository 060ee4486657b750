from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from model.capsnet import CapsNetConfig
from training.recipes import Recipe
from training.run.checkpoint import Checkpoint
from training.run.plan import CHECKPOINT, TrainingError
from training.run.trainer import Trainer

MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def finished(make_trainer: MakeTrainer) -> Checkpoint:
    """A finished run of the tiny recipe."""
    trainer = make_trainer("first")
    trainer.run()
    return Checkpoint.load(trainer.plan.directory / CHECKPOINT)


def test_a_run_starts_from_the_weights_of_another(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """Weights are taken over, the recipe and its steps start anew."""
    trainer = make_trainer(
        "second", seed=2, recipe=replace(tiny, name="second", learning_rate=1e-4)
    )
    trainer.state.start_from(finished)
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(finished.network[name], value)
    assert 0 == trainer.done_steps


def test_where_the_weights_came_from_is_kept(
    make_trainer: MakeTrainer, finished: Checkpoint
) -> None:
    """The checkpoint has the first run, and the one that started from it."""
    trainer = make_trainer("second", seed=2)
    trainer.state.start_from(finished)
    trainer.step()
    trainer.save()
    saved = Checkpoint.load(trainer.plan.directory / CHECKPOINT)
    *before, own = saved.lineage
    assert list(finished.lineage) == before
    assert (2, 1, ("CPU",)) == (own.seed, own.steps, own.devices)


def test_batches_that_the_weights_have_seen_are_refused(
    make_trainer: MakeTrainer, finished: Checkpoint
) -> None:
    """A seed draws the same ones again, also where another run came in between."""
    with pytest.raises(TrainingError, match="another --seed"):
        make_trainer("again").state.start_from(finished)
    second = make_trainer("second", seed=2)
    second.state.start_from(finished)
    second.run()
    with pytest.raises(TrainingError, match="the batches of seed 1"):
        make_trainer("third").state.start_from(Checkpoint.load(second.plan.directory / CHECKPOINT))


def test_a_seed_draws_other_batches_for_another_task(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """Pairs have nothing in common with the single digits of the same seed."""
    pairs = replace(tiny, task="pairs", network=replace(tiny.network, image_size=36))
    assert make_trainer("pairs", recipe=pairs).state.transfer_from(finished)


def test_weights_of_another_network_are_refused(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """Sizes must be the same."""
    other = replace(tiny, network=CapsNetConfig(conv_channels=5, primary_types=1))
    trainer = make_trainer("second", recipe=other)
    with pytest.raises(TrainingError, match="another network"):
        trainer.state.start_from(finished)


def test_a_run_that_has_begun_keeps_its_weights(
    make_trainer: MakeTrainer, finished: Checkpoint
) -> None:
    """After the first step it is too late."""
    trainer = make_trainer("second", seed=2)
    trainer.step()
    with pytest.raises(TrainingError, match="has begun"):
        trainer.state.start_from(finished)


def test_a_larger_network_takes_what_fits(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """Convolutions and the decoder's hidden layers do not depend on the size of the image."""
    larger = replace(tiny, network=replace(tiny.network, image_size=36))
    trainer = make_trainer("second", seed=2, recipe=larger)
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    taken = trainer.state.transfer_from(finished)
    anew = {"classes.weight", "decoder.pixels.weight", "decoder.pixels.bias"}
    assert before.keys() - anew == set(taken)
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(finished.network[name] if name in taken else before[name], value)


def test_what_was_transferred_is_kept(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """The checkpoint names the weights, also after a pause."""
    larger = replace(tiny, task="pairs", network=replace(tiny.network, image_size=36))
    trainer = make_trainer("second", seed=2, recipe=larger)
    taken = trainer.state.transfer_from(finished)
    trainer.step()
    trainer.save()
    make_trainer("second", seed=2, recipe=larger, resume=True).save()
    saved = Checkpoint.load(trainer.plan.directory / CHECKPOINT)
    (before,) = saved.before
    assert taken == before.taken
    assert f"tiny, seed {finished.seed}, {finished.step} steps" == str(before)


def test_nothing_to_transfer_is_refused(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """A network of which no weight fits cannot be started from."""
    network = CapsNetConfig(
        conv_channels=5, primary_types=3, class_dim=3, decoder_hidden=(5, 5), image_size=30
    )
    trainer = make_trainer("second", recipe=replace(tiny, network=network))
    with pytest.raises(TrainingError, match="no weight"):
        trainer.state.transfer_from(finished)
