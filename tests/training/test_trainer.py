from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from model.preprocess import scale
from tests.training.runs import MakeTrainer, metrics, minutes, weights
from training.data.datasets import Examples
from training.losses import margin_loss
from training.recipes import Recipe
from training.state import CHECKPOINT, Checkpoint, TrainingError
from training.tasks import PREVIEW
from training.trainer import Trainer, learning_rate

VOTES = "votes.weight"


@pytest.mark.parametrize("able", [False, True])
def test_convolutions_may_be_rounded(
    make_trainer: MakeTrainer,
    tiny_attention: Recipe,
    monkeypatch: pytest.MonkeyPatch,
    *,
    able: bool,
) -> None:
    """On a CPU with instructions for bfloat16; on another the recipe's wish changes nothing."""
    monkeypatch.setattr("training.device.has_bfloat16", lambda _: able)
    exact = make_trainer("exact", recipe=tiny_attention)
    rounded = make_trainer("rounded", recipe=replace(tiny_attention, convolutions="bfloat16"))
    torch.testing.assert_close(exact.step(), rounded.step(), rtol=2e-2, atol=1e-3)
    assert (not able) == torch.equal(weights(exact)[VOTES], weights(rounded)[VOTES])
    assert rounded.run()
    assert ("bfloat16" if able else "float32",) == rounded.runs[-1].convolutions


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({"epochs": 2.5, "batch_size": 8}, 8),
        ({"epochs": 1, "batch_size": 7}, 4),
        ({"epochs": 0.1, "batch_size": 8}, 1),
    ],
    ids=str,
)
def test_a_last_batch_completes_the_epochs(
    make_trainer: MakeTrainer, tiny: Recipe, change: dict[str, Any], steps: int
) -> None:
    """The number of steps over 24 images is rounded up."""
    assert steps == make_trainer(recipe=replace(tiny, **change)).total_steps


def test_validation_ends_each_epoch(make_trainer: MakeTrainer, bars: Examples) -> None:
    """And the run."""
    trainer = make_trainer(validation=bars)
    trainer.run()
    steps = [line["step"] for line in metrics(trainer) if "validation_error_percent" in line]
    assert [3, 6] == steps


def test_validation_changes_nothing(
    make_trainer: MakeTrainer, tiny_attention: Recipe, bars: Examples
) -> None:
    """Batch normalisation learns in training alone, and validates with what it learnt."""
    plain = make_trainer("plain", recipe=tiny_attention)
    trainer = make_trainer(recipe=tiny_attention, validation=bars)
    modes: set[tuple[bool, bool]] = set()
    trainer.network.register_forward_pre_hook(
        lambda network, _: modes.add((network.training, torch.is_grad_enabled()))
    )
    plain.run()
    trainer.run()
    torch.testing.assert_close(weights(plain), weights(trainer), rtol=0, atol=0)
    assert {(True, True), (False, False)} == modes


@pytest.mark.parametrize("weight", [0, 8.0])
def test_a_step_follows_the_weighted_sum(
    make_trainer: MakeTrainer, tiny: Recipe, weight: float
) -> None:
    """The gradient is the margin loss's plus the weight times that of the mean error."""
    recipe = replace(tiny, mse_weight=weight)
    trainer, twin = make_trainer(recipe=recipe), make_trainer("twin", recipe=recipe)
    trainer.step()
    images, _, labels = twin.task.batches.batch(0)
    numbers = labels[:, 0]
    lengths, poses = twin.network(images)
    drawn = twin.network.decode(poses[range(8), numbers], numbers)
    error = (drawn - images).square().mean()
    margin = margin_loss(lengths, torch.nn.functional.one_hot(numbers, 3).float())
    weights = twin.network.get_parameter(VOTES)
    expected = torch.autograd.grad(margin + weight * error, weights)[0]
    torch.testing.assert_close(expected, trainer.network.get_parameter(VOTES).grad)


SHRINKING = Recipe("r", schedule="exponential")
COSINE = Recipe("r", schedule="cosine")


@pytest.mark.parametrize(
    ("recipe", "total", "rates"),
    [
        pytest.param(
            SHRINKING,
            10**6,
            {0: 0.001, 1000: 0.001 * 0.96**0.5, 2000: 0.00096, 4000: 0.0009216},
            id="by 4 % every 2,000 steps, smoothly",
        ),
        pytest.param(
            COSINE,
            1000,
            {0: 1e-3, 250: 8.535534e-4, 500: 5e-4, 750: 1.464466e-4, 999: 2.467399e-9},
            id="half a cosine wave over the whole run",
        ),
        pytest.param(
            replace(COSINE, warmup_steps=4),
            10**9,
            {0: 0.25e-3, 1: 0.5e-3, 2: 0.75e-3, 3: 1e-3, 4: 1e-3},
            id="rises in even steps to the full one",
        ),
        pytest.param(
            replace(SHRINKING, warmup_steps=300),
            20,
            {1: 1e-3 * 0.96 ** (1 / 2000)},
            id="a short run warms up for a tenth of it",
        ),
    ],
)
def test_learning_rates(recipe: Recipe, total: int, rates: dict[int, float]) -> None:
    """By step."""
    actual = {step: learning_rate(recipe, step, total=total) for step in rates}
    assert pytest.approx(rates, rel=1e-6, abs=0) == actual


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
    averaged = deepcopy(trainer.result)
    norms = [one for one in averaged.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    given = []
    for norm in norms:
        norm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    with torch.no_grad():
        averaged(images)
    raw = [one for one in trainer.network.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    assert norms
    first, own = given[0], norms[0].get_buffer("running_mean")
    torch.testing.assert_close(first.mean(dim=(0, 2, 3)), own, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(own, raw[0].get_buffer("running_mean"), rtol=1e-3)
    assert torch.equal(own, saved(trainer).network[_name_of(averaged, norms[0])])


def _name_of(network: torch.nn.Module, norm: torch.nn.Module) -> str:
    (name,) = (name for name, module in network.named_modules() if module is norm)
    return f"{name}.running_mean"


def stopped_by(number: signal.Signals, *, step: int) -> Callable[[], float]:
    """A clock that sends this process a signal when it is looked at after a step."""

    def ticks() -> Iterator[float]:
        yield from [0.0] * step
        os.kill(os.getpid(), number)
        yield from count()

    return ticks().__next__


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_and_saves(make_trainer: MakeTrainer, number: signal.Signals) -> None:
    """The step under way is finished and saved; afterwards signals do what they did before."""
    before = signal.getsignal(number)
    trainer = make_trainer()
    finished = trainer.run(clock=stopped_by(number, step=2))
    assert (False, 2) == (finished, saved(trainer).runs[-1].steps)
    assert before is signal.getsignal(number)


def test_a_loss_that_is_not_a_number_ends_the_run(make_trainer: MakeTrainer) -> None:
    """When the weights would be saved; the last good checkpoint is kept."""
    trainer = make_trainer()
    trainer.run(max_minutes=2.5, clock=minutes())
    path = trainer.plan.directory / "checkpoint.pt"
    before = path.read_bytes()
    trainer.network.get_parameter("votes.weight").data[0, 0, 0] = math.nan
    with pytest.raises(TrainingError, match="a weight is not finite at step 5"):
        trainer.run(save_every_s=90, clock=minutes())
    assert before == path.read_bytes()


def test_images_stand_above_what_the_network_draws(
    make_trainer: MakeTrainer, bars: Examples, tiny: Recipe
) -> None:
    """Held-out images of all classes, twice as large, and their reconstructions."""
    trainer = make_trainer(validation=bars, recipe=replace(tiny, epochs=30))
    trainer.run()
    shown = np.asarray(Image.open(trainer.plan.directory / PREVIEW))
    assert (2 * 2 * 28, 10 * 2 * 28) == shown.shape
    above, below = (half[::2, ::2].reshape(28, 10, 28) for half in np.split(shown, 2))
    images = {image.tobytes() for image in bars.images[:3, 0]}
    assert images == {above[:, column].tobytes() for column in range(10)}
    with torch.inference_mode():
        poses = trainer.network.eval()(torch.from_numpy(scale(bars.images[:1]))).poses
        drawn = trainer.network.decode(poses[:, 0], torch.zeros(1, dtype=torch.int64))
    np.testing.assert_allclose(below[:, 0], 255 * drawn[0, 0].numpy(), atol=1)
