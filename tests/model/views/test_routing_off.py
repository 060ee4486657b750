from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from model.capsnet import em
from model.capsnet.routing import RoutingByAgreement, RoutingByKMeans, SelfAttention
from model.capsnet.squash import length
from model.outputs import ClassTrace
from model.views.routing_off import switch_off

N, K, I, D = 3, 4, 24, 16  # noqa: E741  the paper's letter


@pytest.fixture
def votes() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, K, I, D, generator=generator) * 0.5


@pytest.fixture
def seen() -> torch.Tensor:
    """Presence of the input capsules, (N, I)."""
    return torch.rand(N, I, generator=torch.Generator().manual_seed(1))


def in_numpy(trace: ClassTrace[torch.Tensor]) -> Any:
    return ClassTrace(*(field.detach().numpy() for field in trace))


@pytest.mark.parametrize("bias", [None, torch.linspace(-0.2, 0.2, K * D).reshape(K, D)])
def test_off_is_a_network_that_routes_once(
    votes: torch.Tensor, seen: torch.Tensor, bias: torch.Tensor | None
) -> None:
    """Routing by agreement, with a bias before the squash and without."""
    trace = in_numpy(RoutingByAgreement(3).trace(votes, seen, bias))
    found = switch_off(trace, "iterations")
    assert ["routed", "uniform", "one-iteration"] == list(found)
    for iterations, variant in enumerate(("uniform", "one-iteration", "routed"), start=1):
        expected = length(RoutingByAgreement(iterations)(votes, bias)).numpy()
        assert np.allclose(expected, found[variant], atol=1e-6)  # type: ignore[index]


def test_off_is_k_means_that_runs_once(votes: torch.Tensor, seen: torch.Tensor) -> None:
    """Shared-weight capsules."""
    found = switch_off(in_numpy(RoutingByKMeans(2).trace(votes, seen)), "iterations")
    assert ["routed", "uniform"] == list(found)
    expected = length(RoutingByKMeans(1)(votes)).numpy()
    assert np.allclose(expected, found["uniform"], atol=1e-6)


def test_off_is_em_routing_that_runs_once(votes: torch.Tensor, seen: torch.Tensor) -> None:
    """At the full inverse temperature, which the first of three iterations has not yet."""
    arguments: dict[str, Any] = {
        "beta_u": torch.full((K,), 0.3),
        "beta_a": torch.linspace(-2, 3, K),
        "inverse_temperature": 0.05,
        "share": torch.nn.Softmax(dim=-2),
        "log_p_divisor": 16.0,
    }
    three = list(em.iterate(votes, seen[:, None], iterations=3, **arguments))
    trace = ClassTrace(
        couplings=torch.stack([step.assignments for step in three], dim=1),
        logits=torch.stack([step.scores for step in three], dim=1),
        presence=torch.stack([step.activations for step in three], dim=1),
        poses=torch.stack([step.poses for step in three], dim=1),
        input_presence=seen,
        votes=votes,
    )
    found = switch_off(in_numpy(trace), "em")
    (once,) = em.iterate(votes, seen[:, None], iterations=1, **arguments)
    assert np.allclose(once.activations.numpy(), found["uniform"], atol=1e-5)
    assert np.array_equal(three[-1].activations.numpy(), found["routed"])


def test_self_attention_loses_its_bias(votes: torch.Tensor, seen: torch.Tensor) -> None:
    """Without B it is the same routing with a bias of zeros; uniform couplings are 1 / K."""
    prior = torch.linspace(-0.3, 0.3, K * I).reshape(K, I)
    found = switch_off(in_numpy(SelfAttention().trace(votes, seen, prior)), "attention")
    assert ["routed", "uniform", "no-bias"] == list(found)
    expected = length(SelfAttention()(votes, torch.zeros(K, I))).numpy()
    assert np.allclose(expected, found["no-bias"], atol=1e-5)
    mean = votes.mean(dim=2) * I / K
    plain = 1 - torch.exp(-mean.norm(dim=-1))
    assert np.allclose(plain.numpy(), found["uniform"], atol=1e-5)
