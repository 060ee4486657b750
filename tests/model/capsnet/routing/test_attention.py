"""Self-attention routing: equation 3 of Mazzia, Salvetti and Chiaberge (2021)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.routing.attention import Routing
from model.capsnet.votes import Votes

N, K, I, D = 3, 4, 9, 16  # noqa: E741 - the paper's letters


route = Routing()


@pytest.fixture
def votes() -> Tensor:
    return torch.randn(N, K, I, D, dtype=torch.float64)


@pytest.fixture
def prior() -> Tensor:
    """B, unlike zero."""
    return torch.randn(K, I, dtype=torch.float64)


def logits_by_formula(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """A_ki = sum_j <u_ki, u_kj> / sqrt(D), for one image (K, I, D), pair by pair."""
    logits = np.zeros((K, I))
    for k, i, j in np.ndindex(K, I, I):
        logits[k, i] += votes[k, i] @ votes[k, j] / 4
    return logits


def route_by_formula(votes: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Class capsules of one image, line by line."""
    logits = logits_by_formula(votes)
    poses = np.zeros((K, D))
    for k in range(K):
        for i in range(I):
            share = math.exp(logits[k, i]) / sum(math.exp(logits[j, i]) for j in range(K))
            poses[k] += (share + prior[k, i]) * votes[k, i]
        norm = math.sqrt(poses[k] @ poses[k])
        poses[k] *= (1 - math.exp(-norm)) / norm
    return poses


def test_factored_votes_are_routed_alike(prior: Tensor) -> None:
    """As in training."""
    layer = Votes(I, in_dim=2, classes=K, out_dim=D, std=1).double()
    capsules = torch.randn(N, I, 2, dtype=torch.float64)
    whole = torch.einsum("nie,iekd->nkid", capsules, layer.weight.reshape(I, 2, K, D))
    torch.testing.assert_close(route(layer.factored(capsules), prior), route(whole, prior))


def test_routing_is_the_formula_s(votes: Tensor, prior: Tensor) -> None:
    """Softmax over classes, B added after it, weighted sum, squash."""
    expected = np.stack([route_by_formula(image.numpy(), prior.numpy()) for image in votes])
    np.testing.assert_allclose(route(votes, prior).numpy(), expected, atol=1e-6)


def test_the_trace_is_the_routing(votes: Tensor, prior: Tensor) -> None:
    """One iteration; what is known of the inputs is passed on."""
    presence = torch.rand(N, I)
    steps = route.trace(votes, prior, presence)
    torch.testing.assert_close(steps.poses, route(votes, prior).unsqueeze(1))
    torch.testing.assert_close(steps.presence, steps.poses.norm(dim=-1), atol=1e-6, rtol=0)
    torch.testing.assert_close(steps.couplings[:, 0], steps.logits[:, 0].softmax(dim=1) + prior)
    assert torch.equal(presence, steps.input_presence)
