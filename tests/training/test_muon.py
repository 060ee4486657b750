"""Muon's steps: their singular values, their scale, and what they leave to Adam."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.capsnet.routing import Votes
from tests.training.runs import MakeTrainer
from training.muon import Muon, orthogonalise
from training.recipes import Recipe

MUON: dict[str, Any] = {"muon_rate": 0.02, "muon_votes": 0.2}


def singular_values(matrices: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrices.float())


@pytest.mark.parametrize("shape", [(16, 16), (8, 200), (200, 8), (3, 96, 16), (128, 1152)], ids=str)
def test_singular_values_are_about_one(shape: tuple[int, ...]) -> None:
    """Whatever they were, over two orders of magnitude, for tall and wide matrices."""
    generator = torch.Generator().manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    values = torch.logspace(-2, 0, left.shape[-1])
    orthogonal = orthogonalise(left * values @ right)
    assert 0.3 < singular_values(orthogonal).min()
    assert singular_values(orthogonal).max() < 1.3
    large = singular_values(orthogonal)[..., : left.shape[-1] // 2]
    assert 0.6 < large.min()


def step_of(weight: Tensor, sides: int, gradients: list[Tensor], rate: float) -> Tensor:
    """How far the last of some steps moves a weight."""
    optimiser = Muon([{"params": [weight], "classes": sides, "lr": rate}])
    before = weight.detach().clone()
    for gradient in gradients:
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimiser.step()
    return weight.detach() - before


@pytest.mark.parametrize(("out", "into"), [(32, 4), (8, 16)])
def test_a_convolution_is_one_matrix(out: int, into: int) -> None:
    """Its step is as long as its rate says, longer where it has more outputs than inputs."""
    weight = nn.Conv2d(into, out, 1).weight
    step = step_of(weight, 0, [torch.randn(weight.shape)], rate=0.1).flatten(1)
    scale = 0.1 * max(1, out / into) ** 0.5
    assert 0.6 * scale < singular_values(step).median() < 1.3 * scale


def test_votes_are_a_matrix_for_each_class() -> None:
    """A class whose gradient is a thousandth of another's moves as far."""
    votes = Votes(12, in_dim=4, classes=3, out_dim=5, std=0.1)
    gradient = torch.randn(12, 4, 3, 5)
    gradient[:, :, 1] *= 1e-3
    step = step_of(votes.weight, 3, [gradient.flatten(2)], rate=0.1)
    by_class = step.reshape(48, 3, 5).transpose(0, 1)
    medians = singular_values(by_class).median(dim=1).values / (0.1 * 48**0.5)
    assert 0.6 < medians.min()
    assert medians.max() < 1.3


def test_only_the_stem_is_normalised(make_trainer: MakeTrainer, tiny_attention: Recipe) -> None:
    """Kernels of the stem keep their norm over a training; those of a decoder do not."""
    network = replace(tiny_attention.network, decoder_hidden=(8,), decoder_channels=(8, 4, 4))
    recipe = replace(tiny_attention, network=network, **MUON, muon_normalised=True)
    trainer = make_trainer(recipe=recipe)
    kernels = {
        name: weight
        for name, weight in trainer.network.named_parameters()
        if weight.ndim == 4 and weight.shape[1] > 1
    }
    before = {name: weight.detach().norm() for name, weight in kernels.items()}
    for _ in range(3):
        trainer.step()
    kept = {name for name, weight in kernels.items() if torch.isclose(weight.norm(), before[name])}
    assert {name for name in kernels if name.startswith("stem.")} == kept
