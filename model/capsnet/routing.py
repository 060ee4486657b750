"""Routing by agreement (paper, procedure 1)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

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
    gradient: Literal["all", "last"] = "all",
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
    early_votes = votes.detach() if gradient == "last" else votes
    # Zero logits couple every capsule equally, so the first weighted sum is a plain one.
    weighted = (early_votes if iterations > 1 else votes).sum(dim=2) / votes.shape[1]  # (N, K, D)
    poses = squash(_add(weighted, bias))
    logits: Tensor | None = None
    for iteration in range(1, iterations):
        agreement = torch.matmul(early_votes, poses.unsqueeze(-1)).squeeze(-1)  # (N, K, I)
        logits = agreement if logits is None else logits + agreement
        current = votes if iteration == iterations - 1 else early_votes
        poses = squash(_add(_weigh(current, logits.softmax(dim=1)), bias))
    return poses


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
        couplings = logits.softmax(dim=1)
        poses = squash(_add(_weigh(votes, couplings), bias))
        steps.append((couplings, logits, poses))
        logits = logits + torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)
    couplings_steps, logits_steps, poses_steps = zip(*steps, strict=True)
    return RoutingTrace(
        couplings=torch.stack(couplings_steps, dim=1),
        logits=torch.stack(logits_steps, dim=1),
        poses=torch.stack(poses_steps, dim=1),
    )


def _weigh(votes: Tensor, couplings: Tensor) -> Tensor:
    """s_k = sum_i c_ik u_ik: (N, K, I, D) and (N, K, I) to (N, K, D)."""
    return torch.matmul(couplings.unsqueeze(2), votes).squeeze(2)


def _add(capsules: Tensor, bias: Tensor | None) -> Tensor:
    return capsules if bias is None else capsules + bias
