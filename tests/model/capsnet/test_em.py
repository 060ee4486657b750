"""EM routing against a plain one: Hinton, Sabour and Frosst (2018), procedure 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.em import FLOOR, MASS, Parents, Windows, iterate

N, C, I, H = 2, 4, 7, 16  # noqa: E741 - images, parents, children, numbers of a pose
Doubles = NDArray[np.float64]


@pytest.fixture
def votes() -> Tensor:
    """Away from zero, so that a moment about zero is not one about the mean."""
    return torch.randn(N, C, I, H, dtype=torch.float64) + 0.7


@pytest.fixture
def active() -> Tensor:
    return torch.rand(N, 1, I, dtype=torch.float64)


@pytest.fixture
def costs() -> tuple[Tensor, Tensor]:
    """beta_u and beta_a, unlike zero and each other."""
    return torch.linspace(-0.5, 0.8, C).double(), torch.linspace(2, -1, C).double()


def run(
    votes: Tensor, active: Tensor, costs: tuple[Tensor, Tensor], **changes: Any
) -> list[Parents]:
    """Route among parents that all see every child."""
    settings = {
        "inverse_temperature": 0.1,
        "share": torch.nn.Softmax(dim=-2),
        "iterations": 3,
        **changes,
    }
    return list(iterate(votes, active, beta_u=costs[0], beta_a=costs[1], **settings))


def plain_em(
    votes: Doubles,
    active: Doubles,
    costs: tuple[Doubles, Doubles],
    *,
    iterations: int,
    last_lambda: float,
    log_p_divisor: float = 1.0,
) -> tuple[Doubles, Doubles, Doubles]:
    """Assignments (C, I), activations (C,) and poses (C, H) of one image, number by number.

    Written as in the paper, with beta_u and beta_a, variances about the mean, and likelihoods that
    are not in logarithms.
    """
    final, equal = last_lambda / (1 - 0.95**iterations), I / C
    beta_u, beta_a = costs[0] / (H * last_lambda), costs[1] / last_lambda
    r = np.full((C, I), 1 / C)
    for step in range(iterations):
        mu, var, a = np.zeros((C, H)), np.zeros((C, H)), np.zeros(C)
        for c in range(C):
            weight = r[c] * active
            mass = weight.sum() + MASS
            cost = 0.0
            for h in range(H):
                mu[c, h] = sum(weight[i] * votes[c, i, h] for i in range(I)) / mass
                var[c, h] = sum(weight[i] * (votes[c, i, h] - mu[c, h]) ** 2 for i in range(I))
                var[c, h] = var[c, h] / mass + FLOOR
                cost += (beta_u[c] + math.log(math.sqrt(var[c, h]))) * weight.sum() / equal
            a[c] = 1 / (1 + math.exp(-final * (1 - 0.95 ** (step + 1)) * (beta_a[c] - cost)))
        if step < iterations - 1:
            p = np.zeros((C, I))
            for c, i in np.ndindex(C, I):
                density = 1.0
                for h in range(H):
                    gap = (votes[c, i, h] - mu[c, h]) ** 2
                    density *= math.exp(-gap / (2 * var[c, h])) / math.sqrt(2 * math.pi * var[c, h])
                p[c, i] = a[c] * density ** (1 / log_p_divisor)
            r = p / p.sum(axis=0)
    return r, a, mu


@pytest.mark.parametrize("temperature", [1.0, 16.0])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_routing_is_procedure_1(
    votes: Tensor, active: Tensor, costs: tuple[Tensor, Tensor], iterations: int, temperature: float
) -> None:
    """Moments from V and V^2, in log space and as products, are those of a plain EM."""
    steps = run(votes, active, costs, iterations=iterations, log_p_divisor=temperature)

    numbers = tuple(cost.numpy() for cost in costs)
    for image in range(N):
        expected = plain_em(
            votes[image].numpy(),
            active[image, 0].numpy(),
            (numbers[0], numbers[1]),
            iterations=iterations,
            last_lambda=0.1,
            log_p_divisor=temperature,
        )
        found = (steps[-1].assignments, steps[-1].activations, steps[-1].poses)
        for wanted, actual in zip(expected, found, strict=True):
            np.testing.assert_allclose(actual[image].numpy(), wanted, atol=1e-4)


@pytest.mark.parametrize("activation", [0.0, 1e-30, 1.0])
@pytest.mark.parametrize("loudness", [0.0, 1.0, 1e3, 1e6])
def test_extremes_stay_finite(loudness: float, activation: float) -> None:
    """Silent and huge votes of children that are there or not: values and gradients."""
    votes = (loudness * torch.randn(2, C, I, H)).requires_grad_()
    active = torch.full((2, 1, I), activation, requires_grad=True)
    costs = torch.zeros(C, requires_grad=True), torch.zeros(C, requires_grad=True)
    *_, last = run(votes, active, costs)
    sum(part.sum() for part in last).backward()  # type: ignore[union-attr]
    for tensor in (*last, votes.grad, active.grad, costs[0].grad, costs[1].grad):
        assert tensor is not None
        assert tensor.isfinite().all()


def test_far_votes_that_almost_agree_stay_finite() -> None:
    """Their variance is below what E[V^2] - mu^2 is rounded to, and comes out negative."""
    votes = 1000 + 0.01 * torch.randn(4, C, 50, H)
    *_, last = run(votes, torch.ones(4, 1, 50), (torch.zeros(C), torch.zeros(C)))
    assert all(part.isfinite().all() for part in last)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (2, 2), (5, 1)])
def test_windows_know_their_cells(kernel: int, stride: int) -> None:
    """Each window's cells, row by row, and for each cell every slot that it sits in."""
    windows = Windows(5, 6, kernel=kernel, stride=stride)
    expected = [
        [(top + y) * 6 + left + x for y in range(kernel) for x in range(kernel)]
        for top in range(0, 5 - kernel + 1, stride)
        for left in range(0, 6 - kernel + 1, stride)
    ]
    assert expected == windows.cells.tolist()
    flat, empty = windows.cells.ravel(), windows.cells.size
    for cell, slots in enumerate(windows.slots.tolist()):
        real = [slot for slot in slots if slot != empty]
        assert np.flatnonzero(flat == cell).tolist() == real
