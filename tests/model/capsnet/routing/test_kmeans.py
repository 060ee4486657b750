"""Routing as clustering, round by round as Su (2018) writes it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.routing.kmeans import Routing

N, K, I, D = 3, 4, 9, 5  # noqa: E741 - as in the other routings


@pytest.fixture
def votes() -> Tensor:
    return torch.randn(N, K, I, D, dtype=torch.float64)


def route(votes: Tensor, *, iterations: int) -> Tensor:
    poses: Tensor = Routing(iterations)(votes)
    return poses


def route_by_hand(votes: NDArray[np.float64], iterations: int) -> NDArray[np.float64]:
    """Class capsules (K, D) of one image's votes (K, I, D), line by line."""
    b = np.zeros((K, I))
    for step in range(iterations):
        o = np.zeros((K, D))
        for k in range(K):
            for i in range(I):
                o[k] += math.exp(b[k, i]) / sum(math.exp(b[j, i]) for j in range(K)) * votes[k, i]
        if step < iterations - 1:
            for k in range(K):
                direction = o[k] / math.sqrt(o[k] @ o[k])
                for i in range(I):
                    b[k, i] = direction @ votes[k, i]  # replaced
    for k in range(K):
        squared = o[k] @ o[k]
        o[k] *= squared / (0.5 + squared) / math.sqrt(squared)
    return o


@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
def test_routing_is_the_source_s(votes: Tensor, iterations: int) -> None:
    """Each image's capsules equal a plain loop over the iterations."""
    expected = np.stack([route_by_hand(image.numpy(), iterations) for image in votes])
    np.testing.assert_allclose(route(votes, iterations=iterations).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("loudness", [0.0, 1e-6, 1e6])
def test_gradients_are_finite(loudness: float) -> None:
    """Silent votes have no direction, and loud ones long means."""
    votes = (loudness * torch.randn(2, K, I, D)).requires_grad_()
    poses = route(votes, iterations=3)
    poses.sum().backward()
    assert votes.grad is not None
    assert poses.isfinite().all()
    assert votes.grad.isfinite().all()
