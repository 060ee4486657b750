"""Routing by agreement (Sabour 2017, procedure 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from model.capsnet.network import ClassTrace
from model.capsnet.squash import length, squash
from model.capsnet.votes import FactoredVotes


class Step(NamedTuple):
    """One iteration."""

    logits: Tensor | None
    """b, (N, K, I); None for zeros."""
    poses: Tensor
    """v, (N, K, D)."""


def iterate(votes: Tensor | FactoredVotes, bias: Tensor | None, iterations: int) -> Iterator[Step]:
    """Route by agreement, iteration by iteration.

    Args:
        votes: (N, K, I, D), or their factors.
        bias: (K, D), added before the squash.
        iterations: how often couplings are computed, at least one.
    """
    logits: Tensor | None = None
    for step in range(iterations):
        sums = weigh(votes, None if logits is None else logits.softmax(dim=1))
        poses = squash(sums if bias is None else sums + bias)
        yield Step(logits, poses)
        if step < iterations - 1:
            agreement = agree(votes, poses)
            logits = agreement if logits is None else logits + agreement


def route(votes: Tensor | FactoredVotes, *, iterations: int, bias: Tensor | None = None) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D); gradients flow through all iterations."""
    *_, last = iterate(votes, bias, iterations)
    return last.poses


def trace(
    votes: Tensor, input_presence: Tensor, *, iterations: int, bias: Tensor | None = None
) -> ClassTrace:
    """The same routing as `route`, with every intermediate kept.

    Args:
        votes: (N, K, I, D).
        input_presence: (N, I), passed on.
        iterations: R, at least one.
        bias: (K, D), added before the squash.
    """
    zeros = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    steps = list(iterate(votes, bias, iterations))
    logits = [zeros if step.logits is None else step.logits for step in steps]
    poses = torch.stack([step.poses for step in steps], dim=1)
    return ClassTrace(
        couplings=torch.stack([logit.softmax(dim=1) for logit in logits], dim=1),
        logits=torch.stack(logits, dim=1),
        presence=length(poses),
        poses=poses,
        input_presence=input_presence,
        votes=votes,
    )


def total(votes: Tensor | FactoredVotes) -> Tensor:
    """sum_i u_ik: (N, K, I, D) to (N, K, D)."""
    if isinstance(votes, FactoredVotes):
        return votes.total()
    # In the products' order of axes onnxruntime needs no transposed copy of the votes.
    return votes.movedim(2, 0).sum(dim=0)


def weigh(votes: Tensor | FactoredVotes, couplings: Tensor | None) -> Tensor:
    """s_k = sum_i c_ik u_ik: (N, K, I, D) and (N, K, I) to (N, K, D)."""
    if couplings is None:  # equal: a plain sum, one product less
        sums = total(votes)
        return sums / sums.shape[1]
    if isinstance(votes, FactoredVotes):
        return votes.weigh(couplings)
    return torch.matmul(couplings.unsqueeze(2), votes).squeeze(2)


def agree(votes: Tensor | FactoredVotes, poses: Tensor) -> Tensor:
    """u_ik . v_k: (N, K, I, D) and (N, K, D) to (N, K, I)."""
    if isinstance(votes, FactoredVotes):
        return votes.agree(poses)
    return torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)
