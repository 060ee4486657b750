"""Routing by agreement (paper, procedure 1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.capsnet.config import RoutingGradient
from model.capsnet.squash import squash


class RoutingTrace(NamedTuple):
    """What routing did, iteration by iteration (R of them)."""

    couplings: Tensor
    """c, (N, R, K, I): how each primary capsule divides itself among the classes."""
    logits: Tensor
    """b, (N, R, K, I): the logits that gave these couplings; zero at first."""
    poses: Tensor
    """v, (N, R, K, D): the class capsules after each iteration."""


def route(
    votes: Tensor,
    *,
    iterations: int,
    bias: Tensor | None = None,
    gradient: RoutingGradient = "all",
) -> Tensor:
    """Class capsules from the votes of the primary capsules.

    Batched matrix products over the class axis: no Einsum and no copy of the votes.

    Args:
        votes: (N, K, I, D), primary capsule i's prediction for class capsule k.
        iterations: how often couplings are computed, at least one.
        bias: (K, D), added before the squash.
        gradient: "last" stops the gradient in all iterations but the last.

    Returns:
        poses (N, K, D).
    """
    if gradient == "last":
        with torch.no_grad():
            logits = _agree(votes, bias, updates=iterations - 1)
    else:
        logits = _agree(votes, bias, updates=iterations - 1)
    return _gather(votes, logits, bias)


def trace(votes: Tensor, *, iterations: int, bias: Tensor | None = None) -> RoutingTrace:
    """The same routing as `route`, with every intermediate kept for people to look at.

    Args:
        votes: (N, K, I, D).
        iterations: R, at least one.
        bias: (K, D), added before the squash.
    """
    logits = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    steps = []
    for _ in range(iterations):
        poses = _gather(votes, logits, bias)
        steps.append((logits.softmax(dim=1), logits, poses))
        logits = logits + _agreement(votes, poses)
    couplings_steps, logits_steps, poses_steps = zip(*steps, strict=True)
    return RoutingTrace(
        couplings=torch.stack(couplings_steps, dim=1),
        logits=torch.stack(logits_steps, dim=1),
        poses=torch.stack(poses_steps, dim=1),
    )


def _agree(votes: Tensor, bias: Tensor | None, *, updates: int) -> Tensor | None:
    """The logits (N, K, I) after some updates; None stands for zero."""
    logits: Tensor | None = None
    for _ in range(updates):
        poses = _gather(votes, logits, bias)
        agreement = _agreement(votes, poses)
        logits = agreement if logits is None else logits + agreement
    return logits


def _gather(votes: Tensor, logits: Tensor | None, bias: Tensor | None) -> Tensor:
    """V = squash(sum_i c_ik u_ik + bias): (N, K, I, D) and (N, K, I) to (N, K, D)."""
    if logits is None:  # equal couplings: a plain sum, one product less
        weighted = votes.sum(dim=2) / votes.shape[1]
    else:
        weighted = torch.matmul(logits.softmax(dim=1).unsqueeze(2), votes).squeeze(2)
    return squash(weighted if bias is None else weighted + bias)


def _agreement(votes: Tensor, poses: Tensor) -> Tensor:
    """u_ik . v_k: (N, K, I, D) and (N, K, D) to (N, K, I)."""
    return torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)
