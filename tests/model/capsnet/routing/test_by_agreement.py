from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.routing import by_agreement
from model.capsnet.votes import FactoredVotes, Votes

N, K, I, D = 3, 4, 9, 5  # noqa: E741 - the paper's letters


@pytest.fixture
def votes() -> Tensor:
    """Random votes (N, K, I, D), long enough to move the couplings."""
    return torch.randn(N, K, I, D, dtype=torch.float64)


@pytest.fixture
def bias() -> Tensor:
    """A bias (K, D) unlike any vote."""
    return torch.randn(K, D, dtype=torch.float64)


def route(votes: Tensor | FactoredVotes, *, iterations: int, bias: Tensor | None = None) -> Tensor:
    poses: Tensor = by_agreement.Routing(iterations)(votes, bias)
    return poses


def procedure_1(
    votes: NDArray[np.float64], iterations: int, bias: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Procedure 1 of the paper for one image, line by line: votes (K, I, D) to poses (K, D)."""
    classes, inputs, _ = votes.shape
    b = np.zeros((inputs, classes))
    v = np.zeros_like(bias)
    for _ in range(iterations):
        for j in range(classes):
            s = bias[j].copy()
            for i in range(inputs):
                c_ij = math.exp(b[i, j]) / sum(math.exp(b[i, k]) for k in range(classes))
                s += c_ij * votes[j, i]
            norm = math.sqrt(float(s @ s))
            v[j] = norm**2 / (1 + norm**2) * s / norm
        for i in range(inputs):
            for j in range(classes):
                b[i, j] += votes[j, i] @ v[j]
    return v


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_routing_is_procedure_1(
    votes: Tensor, bias: Tensor, iterations: int, *, with_bias: bool
) -> None:
    """Each image's poses equal a plain loop over the paper's procedure."""
    poses = route(votes, iterations=iterations, bias=bias if with_bias else None)

    added = bias.numpy() if with_bias else np.zeros((K, D))
    expected = np.stack([procedure_1(image.numpy(), iterations, added) for image in votes])
    np.testing.assert_allclose(poses.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_factored_votes_are_routed_alike(bias: Tensor, iterations: int, *, with_bias: bool) -> None:
    """Poses and gradients are those of the votes multiplied out, through every iteration."""
    layer = Votes(I, in_dim=2, classes=K, out_dim=D, std=1).double()
    capsules = torch.randn(N, I, 2, dtype=torch.float64, requires_grad=True)
    leaves = [capsules, layer.weight, *([bias.requires_grad_()] if with_bias else [])]
    added, above = bias if with_bias else None, torch.randn(N, K, D, dtype=torch.float64)
    whole = torch.einsum("nie,iekd->nkid", capsules, layer.weight.reshape(I, 2, K, D))
    expected, poses = (
        route(votes, iterations=iterations, bias=added)
        for votes in (whole, layer.factored(capsules))
    )
    torch.testing.assert_close(poses, expected)
    wanted = torch.autograd.grad(expected, leaves, above)
    torch.testing.assert_close(torch.autograd.grad(poses, leaves, above), wanted)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_gradient_is_the_derivative(iterations: int) -> None:
    """Numerical and analytical derivatives of routing agree."""
    votes = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(
        lambda u, b: route(u, iterations=iterations, bias=b), (votes, bias)
    )
