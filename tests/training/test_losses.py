from __future__ import annotations

import math

import pytest
import torch

from model.capsnet.baseline import BaselineConfig
from training.losses import (
    classification_loss,
    cross_entropy,
    margin_loss,
    reconstruction_loss,
    spread_loss,
    spread_margin,
    total_loss,
)
from training.recipes import Recipe


@pytest.mark.parametrize(
    ("lengths", "present", "expected"),
    [
        pytest.param([0.8, 0.3, 0.05], [1, 0, 0], 0.1**2 + 0.5 * 0.2**2, id="one class"),
        pytest.param([0.5, 0.7, 0.4], [1, 1, 0], 0.4**2 + 0.2**2 + 0.5 * 0.3**2, id="two classes"),
        pytest.param([0.5, 0.3, 0.1], [0, 0, 0], 0.5 * 0.4**2 + 0.5 * 0.2**2, id="no class"),
        pytest.param([0.0, 1.0], [1, 0], 0.9**2 + 0.5 * 0.9**2, id="all wrong"),
        pytest.param([0.1] + [0.2] * 9, [1] + [0] * 9, 0.8**2 + 4.5 * 0.1**2, id="ten classes"),
    ],
)
def test_margin_loss_of_one_image(
    lengths: list[float], present: list[int], expected: float
) -> None:
    """Squared hinges on the lengths themselves, absent classes at half weight, are summed."""
    actual = margin_loss(torch.tensor([lengths]), torch.tensor([present], dtype=torch.float32))
    assert expected == pytest.approx(actual.item(), rel=1e-5)


@pytest.mark.parametrize("lengths", [[0.95, 0.05], [0.9, 0.1], [1.0, 0.0]], ids=str)
def test_lengths_beyond_the_margins_cost_nothing(lengths: list[float]) -> None:
    """From 0.9 up where present and from 0.1 down where absent, the loss is zero."""
    assert 0 == margin_loss(torch.tensor([lengths]), torch.tensor([[1.0, 0.0]])).item()


def test_margin_loss_is_averaged_over_the_batch() -> None:
    """An image that costs 0.03 and one that costs 0.01 make 0.02."""
    lengths = torch.tensor([[0.8, 0.3], [0.1, 0.8]])
    present = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert pytest.approx(0.02, rel=1e-5) == margin_loss(lengths, present).item()


def test_the_margin_losss_gradient_is_that_of_squares() -> None:
    """A present class at 0.4 is pulled by 2 * 0.5, an absent one at 0.3 pushed by 0.2."""
    lengths = torch.tensor([[0.4, 0.3]], requires_grad=True)
    loss = margin_loss(lengths, torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(torch.tensor([[-1.0, 0.2]]), torch.autograd.grad(loss, lengths)[0])


def test_reconstruction_loss_is_a_sum_over_pixels() -> None:
    """784 pixels that are half a unit off cost 196, not a quarter."""
    images = torch.ones(1, 1, 28, 28)
    assert 196 == reconstruction_loss(images / 2, images).item()


def test_reconstruction_loss_is_averaged_over_the_batch() -> None:
    """Images whose six pixels are off by 0.5 and by 1 cost (1.5 + 6) / 2."""
    images = torch.ones(2, 1, 2, 3)
    drawn = torch.stack((torch.full((1, 2, 3), 0.5), torch.zeros(1, 2, 3)))
    assert 3.75 == reconstruction_loss(drawn, images).item()


def test_a_perfect_reconstruction_costs_nothing() -> None:
    """An image is at no distance from itself."""
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert 0 == reconstruction_loss(images.clone(), images).item()


def test_spread_loss_of_one_image() -> None:
    """Classes closer to the present one than the margin cost the square of what is missing."""
    activations, present = torch.tensor([[0.8, 0.7, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]])
    loss = spread_loss(activations, present, margin=0.5)
    assert pytest.approx((0.5 - 0.1) ** 2, rel=1e-5) == loss.item()


def test_spread_loss_is_averaged_over_the_batch() -> None:
    """An image that costs nothing halves the loss of one that costs something."""
    activations = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    present = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert (
        pytest.approx(0.9**2 / 2, rel=1e-5) == spread_loss(activations, present, margin=0.9).item()
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.2 + 0.79 / (1 + math.exp(4))), (400, 0.595), (10_000, 0.2 + 0.79 / (1 + math.exp(-10)))],
)
def test_the_spread_margin_rises(step: int, expected: float) -> None:
    """From about 0.2 to 0.99, half of it after four times the steps that it is measured in."""
    assert pytest.approx(expected, rel=1e-5) == spread_margin(torch.tensor(float(step)), 100).item()


def test_the_spread_loss_knows_the_step() -> None:
    """The later it is, the more the same activations cost."""
    compute = classification_loss(Recipe("r", loss="spread", spread_steps=100))
    activations, present = torch.tensor([[0.6, 0.4]]), torch.tensor([[1.0, 0.0]])
    losses = [
        compute(activations, present, torch.tensor(float(step))).item() for step in (0, 400, 1000)
    ]
    assert sorted(losses) == losses
    assert losses[0] < losses[-1]


def test_the_recipe_says_in_how_many_steps_the_margin_rises() -> None:
    """After four times as many it is 0.595."""
    compute = classification_loss(Recipe("r", loss="spread", spread_steps=70))
    activations, present = torch.tensor([[0.6, 0.4]]), torch.tensor([[1.0, 0.0]])
    loss = compute(activations, present, torch.tensor(280.0)).item()
    assert pytest.approx((0.595 - 0.2) ** 2, rel=1e-5) == loss


def test_the_recipe_says_what_absent_classes_weigh() -> None:
    """In the margin loss."""
    compute = classification_loss(Recipe("r", loss="margin", absent_weight=0.25))
    lengths, present = torch.tensor([[0.9, 0.3]]), torch.tensor([[1.0, 0.0]])
    assert (
        pytest.approx(0.25 * 0.2**2, rel=1e-5)
        == compute(lengths, present, torch.tensor(0.0)).item()
    )


def test_cross_entropy_of_exclusive_classes() -> None:
    """Minus the logarithm of the present class's probability."""
    logits, present = torch.tensor([[0.2, 0.5, 0.3]]).log(), torch.tensor([[0.0, 1.0, 0.0]])
    loss = cross_entropy(logits, present, multi_label=False)
    assert pytest.approx(math.log(2), rel=1e-5) == loss.item()


def test_cross_entropy_of_classes_with_a_sigmoid_each() -> None:
    """Those that are absent count as well, of one present class as of two."""
    logits = torch.tensor([[0.5, 0.5, 0.2]]).logit()
    for present, expected in (
        ([1.0, 1.0, 0.0], 2 * math.log(2) - math.log(0.8)),
        ([1.0, 0.0, 0.0], 2 * math.log(2) - math.log(0.8)),
        ([0.0, 0.0, 1.0], 2 * math.log(2) - math.log(0.2)),
    ):
        loss = cross_entropy(logits, torch.tensor([present]), multi_label=True)
        assert pytest.approx(expected, rel=1e-5) == loss.item()


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_certain_but_wrong_answer_has_a_gradient(*, multi_label: bool) -> None:
    """Also where its probability rounds to one, and that of the truth to zero."""
    logits = torch.tensor([[-200.0, 200.0]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([[1.0, 0.0]]), multi_label=multi_label)
    loss.backward()
    assert logits.grad is not None
    assert torch.isfinite(loss)
    assert [[-1.0, 1.0]] == logits.grad.tolist()


def test_the_recipe_says_whether_several_classes_are_present() -> None:
    """Not the labels: of one label a network of sigmoids learns too that the others are absent."""
    network = BaselineConfig(multi_label=True)
    compute = classification_loss(Recipe("r", network=network, loss="cross-entropy"))
    logits, present = torch.tensor([[0.0, 5.0]]), torch.tensor([[1.0, 0.0]])
    expected = math.log(2) + math.log1p(math.exp(5))
    assert pytest.approx(expected) == compute(logits, present, torch.tensor(0.0)).item()


def test_the_reconstruction_is_weighed() -> None:
    """Other terms count as they are."""
    losses = {"spread": torch.tensor(2.0), "reconstruction": torch.tensor(50.0)}
    assert 2.5 == total_loss(losses, Recipe("r", reconstruction_weight=0.01)).item()
