"""Routing as clustering, round by round as Su (2018) writes it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.routing.kmeans import Routing
from model.outputs import ClassTrace

N, K, I, D = 3, 4, 9, 5  # noqa: E741 - as in the other routings


@pytest.fixture
def votes() -> Tensor:
    return torch.randn(N, K, I, D, dtype=torch.float64)


def route(votes: Tensor, *, iterations: int) -> Tensor:
    poses: Tensor = Routing(iterations)(votes)
    return poses


def trace(votes: Tensor, *, iterations: int) -> ClassTrace[Tensor]:
    return Routing(iterations).trace(votes, torch.zeros(N, I))


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


def test_iterations_change_the_answer(votes: Tensor) -> None:
    """Each further round does."""
    answers = [route(votes, iterations=iterations) for iterations in (1, 2, 3, 4)]
    for before, after in pairwise(answers):
        assert (before - after).abs().max() > 1e-3


def test_logits_are_replaced_not_added_up(votes: Tensor) -> None:
    """Those of a round are its agreement alone: no longer than the votes themselves."""
    steps = trace(votes, iterations=6)
    longest = votes.norm(dim=-1)
    assert not steps.logits[:, 0].any()
    assert (steps.logits.abs() <= longest.unsqueeze(1) + 1e-9).all()
    moves = (steps.logits[:, 1:] - steps.logits[:, :-1]).abs().amax(dim=(0, 2, 3))
    assert moves[-1] < moves[0] / 5  # clusters settle; sums would grow without end


def test_the_length_of_means_does_not_count(votes: Tensor) -> None:
    """Means are used as directions, so votes twice as long have logits twice as large."""
    once, twice = (trace(some, iterations=2).logits[:, 1] for some in (votes, 2 * votes))
    torch.testing.assert_close(2 * once, twice, atol=1e-6, rtol=0)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_any_number_of_inputs_is_routed(count: int) -> None:
    """And their order does not matter."""
    votes = torch.randn(2, K, count, D, dtype=torch.float64)
    poses = route(votes, iterations=3)
    assert (2, K, D) == poses.shape
    torch.testing.assert_close(route(votes[:, :, torch.randperm(count)], iterations=3), poses)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_trace_ends_with_the_routed_poses(votes: Tensor, iterations: int) -> None:
    """Iteration r holds what r + 1 iterations answer."""
    steps = trace(votes, iterations=iterations)
    for step in range(iterations):
        torch.testing.assert_close(steps.poses[:, step], route(votes, iterations=step + 1))
    torch.testing.assert_close(steps.presence, steps.poses.norm(dim=-1), atol=1e-6, rtol=0)
    torch.testing.assert_close(steps.couplings, steps.logits.softmax(dim=2))


@pytest.mark.parametrize("loudness", [0.0, 1e-6, 1e6])
def test_gradients_are_finite(loudness: float) -> None:
    """Silent votes have no direction, and loud ones long means."""
    votes = (loudness * torch.randn(2, K, I, D)).requires_grad_()
    poses = route(votes, iterations=3)
    poses.sum().backward()
    assert votes.grad is not None
    assert poses.isfinite().all()
    assert votes.grad.isfinite().all()
