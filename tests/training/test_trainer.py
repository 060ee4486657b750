from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model.capsnet import Network
from tests.training.runs import MakeTrainer, metrics, weights
from training.data.datasets import Examples
from training.losses import margin_loss
from training.recipes import Recipe
from training.tasks import Single
from training.trainer import learning_rate

CPU = torch.device("cpu")

VOTES = "votes.weight"


def test_the_losses_fall(make_trainer: MakeTrainer, tiny: Recipe) -> None:
    """Within ten epochs the classes are distinguished, and the decoder learns as well."""
    trainer = make_trainer(recipe=replace(tiny, epochs=10))
    trainer.run(log_every=3)
    first, last = metrics(trainer)[0], metrics(trainer)[-1]
    assert first["margin_loss"] / 10 > last["margin_loss"]
    assert 0.9 * first["reconstruction_loss"] > last["reconstruction_loss"]


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
    rounded = make_trainer("rounded", recipe=_rounded(tiny_attention, "convolutions"))
    torch.testing.assert_close(exact.step(), rounded.step(), rtol=2e-2, atol=1e-3)
    assert (not able) == torch.equal(weights(exact)[VOTES], weights(rounded)[VOTES])
    assert rounded.run()
    assert ("bfloat16" if able else "float32",) == rounded.state.run.convolutions


def _rounded(recipe: Recipe, what: str) -> Recipe:
    return replace(recipe, **{what: "bfloat16"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({"epochs": 2, "batch_size": 8}, 6),
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


def test_the_same_seed_gives_the_same_weights(make_trainer: MakeTrainer) -> None:
    """Two runs of one recipe and seed end in identical networks."""
    first, second = make_trainer("first"), make_trainer("second")
    first.run()
    second.run()
    torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=0)


def test_metrics_are_means_since_the_last_line(make_trainer: MakeTrainer) -> None:
    """A line holds the mean losses of its own steps, and nothing of those before."""
    twin, trainer = make_trainer("twin"), make_trainer()
    steps = [twin.step() for _ in range(6)]
    trainer.run(log_every=2)
    for name in ("margin", "reconstruction"):
        expected = torch.stack([losses[name] for losses in steps]).reshape(3, 2).mean(dim=1)
        actual = torch.tensor([line[f"{name}_loss"] for line in metrics(trainer)])
        torch.testing.assert_close(expected, actual)


@pytest.mark.parametrize(("every", "expected"), [(None, [3, 6]), (4, [4, 6])])
def test_validation_ends_each_epoch(
    every: int | None, expected: list[int], make_trainer: MakeTrainer, bars: Examples
) -> None:
    """Or comes every so many steps, and after the last one."""
    trainer = make_trainer(validation=bars)
    trainer.run(validate_every=every)
    steps = [line["step"] for line in metrics(trainer) if "validation_error_percent" in line]
    assert expected == steps


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


def test_dropout_depends_on_seed_and_step_alone(
    make_trainer: MakeTrainer, tiny_baseline: Recipe
) -> None:
    """Random numbers that are drawn in between change nothing."""
    plain = make_trainer("plain", recipe=tiny_baseline)
    trainer = make_trainer(recipe=tiny_baseline)
    for _ in range(3):
        plain.step()
        torch.rand(7)
        trainer.step()
    torch.testing.assert_close(weights(plain), weights(trainer), rtol=0, atol=0)


@pytest.mark.parametrize("validating", [True, False])
def test_only_training_images_are_shifted(
    make_trainer: MakeTrainer, bars: Examples, *, validating: bool
) -> None:
    """What the network sees in validation are the images as they are; in training they are not."""
    trainer = make_trainer(validation=bars)
    seen: list[Tensor] = []

    def look(_: Network, inputs: tuple[Tensor]) -> None:
        if validating != torch.is_grad_enabled():
            seen.append(inputs[0])

    trainer.network.register_forward_pre_hook(look)
    trainer.run()
    originals = {image.tobytes() for image in bars.images}
    shown = (torch.cat(seen) * 255).round().to(torch.uint8).numpy()
    assert validating == ({image.tobytes() for image in shown} <= originals)


@pytest.mark.parametrize("weight", [0, 0.392, 8.0])
def test_a_step_follows_the_weighted_sum(
    make_trainer: MakeTrainer, tiny: Recipe, weight: float
) -> None:
    """The gradient is the margin loss's plus the weight times that of the mean error."""
    recipe = replace(tiny, mse_weight=weight)
    trainer, twin = make_trainer(recipe=recipe), make_trainer("twin", recipe=recipe)
    trainer.step()
    assert isinstance(twin.task, Single)
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
