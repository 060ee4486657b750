from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.bundle import WEIGHTS
from model.capsnet import load
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.stem import Conv
from tests.training.published import RUN, say_training
from tests.training.runs import MakeTrainer
from training.recipes import Recipe
from training.state import CHECKPOINT, Checkpoint, CheckpointError, TrainingError, starting_point


@pytest.fixture
def finished(make_trainer: MakeTrainer) -> Checkpoint:
    """A finished run of the tiny recipe."""
    trainer = make_trainer("first")
    trainer.run()
    return Checkpoint.load(trainer.plan.directory / CHECKPOINT)


def test_a_run_starts_from_a_bundle(
    make_trainer: MakeTrainer, bundle_path: Path, tmp_path: Path
) -> None:
    """From its weights in 16 bits; its runs come before the new one."""
    start = starting_point(say_training(bundle_path, tmp_path / "toys").path)
    trainer = make_trainer("second", seed=2, recipe=replace(start.recipe, epochs=1))
    trainer.start_from(start)
    for name, weight in load(bundle_path).state_dict().items():
        assert torch.equal(weight, trainer.network.state_dict()[name])
    trainer.step()
    trainer.save()
    saved = starting_point(trainer.plan.directory)
    assert [RUN.id, trainer.runs[-1].id] == [run.id for run in saved.runs]


def test_a_broken_bundle_gives_no_weights(bundle_path: Path, tmp_path: Path) -> None:
    """Nor do one that does not say how it was trained, and a folder with nothing in it."""
    folder = Path(shutil.copytree(bundle_path, tmp_path / "broken"))
    with pytest.raises(CheckpointError, match="no weights can be taken"):
        starting_point(folder)
    (folder / WEIGHTS).write_bytes(b"")
    with pytest.raises(CheckpointError, match=WEIGHTS):
        starting_point(folder)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        starting_point(tmp_path)


def test_batches_that_the_weights_have_seen_are_refused(
    make_trainer: MakeTrainer, finished: Checkpoint
) -> None:
    """A seed draws the same ones again, also where another run came in between."""
    with pytest.raises(TrainingError, match="another --seed"):
        make_trainer("again").start_from(finished)
    second = make_trainer("second", seed=2)
    second.start_from(finished)
    second.run()
    with pytest.raises(TrainingError, match="the batches of seed 1"):
        make_trainer("third").start_from(Checkpoint.load(second.plan.directory / CHECKPOINT))


OTHER = DynamicConfig(stem=(Conv(5, 9),), primary_types=1)
NOTHING_ALIKE = DynamicConfig(
    stem=(Conv(5, 9),), primary_types=3, class_dim=3, decoder_hidden=(5, 5), height=30, width=30
)


@pytest.mark.parametrize(
    ("network", "fitting", "message"),
    [(OTHER, False, "another network"), (NOTHING_ALIKE, True, "no weight")],
    ids=["of other sizes", "nothing to transfer"],
)
def test_weights_of_another_network_are_refused(
    make_trainer: MakeTrainer,
    finished: Checkpoint,
    tiny: Recipe,
    *,
    network: DynamicConfig,
    fitting: bool,
    message: str,
) -> None:
    """Sizes must be the same; of those that need only fit, one at least has to."""
    trainer = make_trainer("second", recipe=replace(tiny, network=network))
    with pytest.raises(TrainingError, match=message):
        trainer.start_from(finished, fitting=fitting)


def test_a_larger_network_takes_what_fits(
    make_trainer: MakeTrainer, finished: Checkpoint, tiny: Recipe
) -> None:
    """Convolutions and the decoder's hidden layers do not depend on the size of the image."""
    larger = replace(tiny, network=replace(tiny.network, height=36, width=36))
    trainer = make_trainer("second", seed=2, recipe=larger)
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    taken = trainer.start_from(finished, fitting=True)
    anew = {"votes.weight", "decoder.pixels.weight", "decoder.pixels.bias"}
    assert before.keys() - anew == set(taken)
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(finished.network[name] if name in taken else before[name], value)


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        pytest.param(
            ("dekoder",), "dekoder is no part of the network; it has stem, primary", id="typo"
        ),
        pytest.param(("vote",), "vote is no part", id="half of a name"),
        pytest.param(("stem", "primary", "votes", "decoder"), "everything", id="everything"),
    ],
)
def test_what_cannot_be_frozen(
    make_trainer: MakeTrainer, tiny: Recipe, frozen: tuple[str, ...], message: str
) -> None:
    """The message says what there is."""
    with pytest.raises(TrainingError, match=message):
        make_trainer(recipe=replace(tiny, frozen=frozen))


@pytest.mark.parametrize("muon_rate", [0.0, 0.02])
def test_weights_decay_and_biases_do_not(
    make_trainer: MakeTrainer, tiny_attention: Recipe, muon_rate: float
) -> None:
    """A kernel loses rate times decay of itself in a step, whichever optimiser moves it."""
    plain = replace(tiny_attention, warmup_steps=0, muon_rate=muon_rate)
    decaying = replace(plain, weight_decay=0.5)
    trainers = [make_trainer(str(at), recipe=one) for at, one in enumerate((plain, decaying))]
    before = {name: weight.clone() for name, weight in trainers[0].network.named_parameters()}
    for trainer in trainers:
        trainer.step()
    first, second = (dict(trainer.network.named_parameters()) for trainer in trainers)
    for name, weight in before.items():
        lost = plain.learning_rate * 0.5 * weight if weight.ndim > 1 else torch.zeros_like(weight)
        torch.testing.assert_close(first[name] - second[name], lost, rtol=1e-3, atol=1e-6)
