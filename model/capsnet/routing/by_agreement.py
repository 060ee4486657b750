"""Routing by agreement (Sabour 2017, procedure 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.network import ClassTrace
from model.capsnet.squash import length, squash
from model.capsnet.votes import FactoredVotes

Couple = Callable[[Tensor], Tensor]
"""Logits (N, K, I) to couplings (N, K, I)."""


class Routing(nn.Module):
    """Routing by agreement as a module, so that a hook or a subclass reaches its couplings.

    Args:
        iterations: R, at least one; may be changed later.
    """

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.couplings = nn.Softmax(dim=1)
        """Logits b to couplings c, (N, K, I), of every iteration but the first, where all are
        1 / K."""

    def forward(self, votes: Tensor | FactoredVotes, bias: Tensor | None = None) -> Tensor:
        """Class capsules (N, K, D): see `route`."""
        *_, last = iterate(votes, bias, self.iterations, self.couplings)
        return last.poses

    def trace(self, votes: Tensor, input_presence: Tensor, bias: Tensor | None) -> ClassTrace:
        """Every iteration: see `trace`."""
        steps = iterate(votes, bias, self.iterations, self.couplings)
        return _trace(list(steps), votes, input_presence)


class Step(NamedTuple):
    """One iteration."""

    logits: Tensor | None
    """b, (N, K, I); None for zeros."""
    couplings: Tensor | None
    """c, (N, K, I); None for 1 / K."""
    poses: Tensor
    """v, (N, K, D)."""


def couple(logits: Tensor) -> Tensor:
    """The softmax over classes."""
    return logits.softmax(dim=1)


def iterate(
    votes: Tensor | FactoredVotes,
    bias: Tensor | None,
    iterations: int,
    couple: Couple = couple,
) -> Iterator[Step]:
    """Route by agreement, iteration by iteration.

    Args:
        votes: (N, K, I, D), or their factors.
        bias: (K, D), added before the squash.
        iterations: how often couplings are computed, at least one.
        couple: logits to couplings.
    """
    logits: Tensor | None = None
    for step in range(iterations):
        couplings = None if logits is None else couple(logits)
        sums = weigh(votes, couplings)
        poses = squash(sums if bias is None else sums + bias)
        yield Step(logits, couplings, poses)
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
    return _trace(list(iterate(votes, bias, iterations)), votes, input_presence)


def _trace(steps: list[Step], votes: Tensor, input_presence: Tensor) -> ClassTrace:
    zeros = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    logits = [zeros if step.logits is None else step.logits for step in steps]
    couplings = [couple(zeros) if step.couplings is None else step.couplings for step in steps]
    poses = torch.stack([step.poses for step in steps], dim=1)
    return ClassTrace(
        couplings=torch.stack(couplings, dim=1),
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
