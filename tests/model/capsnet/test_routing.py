"""Votes and routing algorithms, each next to its paper's procedure as plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.capsnet.routing import RoutingByAgreement, RoutingByKMeans, SelfAttention, Votes

N, K, I, D = 3, 4, 9, 5  # noqa: E741 - the papers' letters
Doubles = NDArray[np.float64]


@pytest.fixture
def votes() -> Tensor:
    """Random votes (N, K, I, D), long enough to move the couplings."""
    return torch.randn(N, K, I, D, dtype=torch.float64)


@pytest.fixture
def bias() -> Tensor:
    """A bias (K, D) unlike any vote."""
    return torch.randn(K, D, dtype=torch.float64)


@pytest.fixture
def coupling_bias() -> Tensor:
    """B, unlike zero."""
    return torch.randn(K, I, dtype=torch.float64)


@pytest.mark.parametrize("capsules", [I, None], ids=["own", "shared"])
def test_a_vote_is_the_capsule_times_its_matrix(capsules: int | None) -> None:
    """Vote (k, i) is u_i W_ik, or u_i W_k where all share their weights."""
    layer = Votes(capsules, in_dim=2, classes=K, out_dim=D, std=1)
    primary = torch.randn(N, I, 2)
    matrices = layer.weight.expand(I, 2, K * D).reshape(I, 2, K, D)
    expected = torch.einsum("nie,iekd->nkid", primary, matrices)
    torch.testing.assert_close(layer(primary), expected)


def procedure_1(votes: Doubles, iterations: int, bias: Doubles) -> Doubles:
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
def test_routing_by_agreement_is_procedure_1(
    votes: Tensor, bias: Tensor, iterations: int, *, with_bias: bool
) -> None:
    """Each image's poses equal a plain loop over the paper's procedure."""
    poses = RoutingByAgreement(iterations)(votes, bias if with_bias else None)

    added = bias.numpy() if with_bias else np.zeros((K, D))
    expected = np.stack([procedure_1(image.numpy(), iterations, added) for image in votes])
    np.testing.assert_allclose(poses.numpy(), expected, atol=1e-6)


def test_the_gradient_is_the_derivative() -> None:
    """Numerical and analytical derivatives of three iterations agree."""
    votes = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(RoutingByAgreement(3), (votes, bias))


def cluster_by_hand(votes: Doubles, iterations: int) -> Doubles:
    """Class capsules (K, D) of one image's votes (K, I, D), line by line as Su (2018) writes it."""
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
def test_routing_by_k_means_is_the_source_s(votes: Tensor, iterations: int) -> None:
    """Each image's capsules equal a plain loop over the iterations."""
    expected = np.stack([cluster_by_hand(image.numpy(), iterations) for image in votes])
    np.testing.assert_allclose(RoutingByKMeans(iterations)(votes).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("loudness", [0.0, 1e-6, 1e6])
def test_gradients_are_finite(loudness: float) -> None:
    """Silent votes have no direction, and loud ones long means."""
    votes = (loudness * torch.randn(2, K, I, D)).requires_grad_()
    poses = RoutingByKMeans(3)(votes)
    poses.sum().backward()
    assert votes.grad is not None
    assert poses.isfinite().all()
    assert votes.grad.isfinite().all()


def attend_by_formula(votes: Doubles, coupling_bias: Doubles) -> Doubles:
    """Class capsules of one image by equation 3 of Mazzia (2021), pair by pair."""
    logits = np.zeros((K, I))
    for k, i, j in np.ndindex(K, I, I):
        logits[k, i] += votes[k, i] @ votes[k, j] / math.sqrt(D)
    poses = np.zeros((K, D))
    for k in range(K):
        for i in range(I):
            share = math.exp(logits[k, i]) / sum(math.exp(logits[j, i]) for j in range(K))
            poses[k] += (share + coupling_bias[k, i]) * votes[k, i]
        norm = math.sqrt(poses[k] @ poses[k])
        poses[k] *= (1 - math.exp(-norm)) / norm
    return poses


def test_self_attention_is_equation_3(votes: Tensor, coupling_bias: Tensor) -> None:
    """Softmax over classes, B added after it, weighted sum, squash."""
    poses = SelfAttention()(votes, coupling_bias)
    images, added = votes.numpy(), coupling_bias.numpy()
    expected = np.stack([attend_by_formula(image, added) for image in images])
    np.testing.assert_allclose(poses.numpy(), expected, atol=1e-6)
