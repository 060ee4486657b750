"""Routing as clustering: k-means with a softmax (Su 2018, "Another new Capsule").

In each iteration the class capsules are the weighted means of the votes, as directions, and the
logits are the agreement with them: replaced, not added up. The last sums are squashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.network import ClassTrace
from model.capsnet.routing.by_agreement import Couple, agree, couple, weigh
from model.capsnet.squash import length, squash_half


class Step(NamedTuple):
    """One iteration."""

    logits: Tensor | None
    """(N, K, I); None for zeros."""
    couplings: Tensor | None
    """(N, K, I); None for 1 / K."""
    sums: Tensor
    """(N, K, D)."""


class Routing(nn.Module):
    """Routing as clustering as a module, so that a hook or a subclass reaches its couplings.

    Args:
        iterations: R, at least one; may be changed later.
    """

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.couplings = nn.Softmax(dim=1)
        """Logits to couplings, (N, K, I), of every iteration but the first, where all are 1 / K."""

    def forward(self, votes: Tensor) -> Tensor:
        """Class capsules (N, K, D): see `route`."""
        *_, last = iterate(votes, self.iterations, self.couplings)
        return squash_half(last.sums)

    def trace(self, votes: Tensor, input_presence: Tensor) -> ClassTrace:
        """Every iteration: see `trace`."""
        return _trace(list(iterate(votes, self.iterations, self.couplings)), votes, input_presence)


def iterate(votes: Tensor, iterations: int, couple: Couple = couple) -> Iterator[Step]:
    """Route votes (N, K, I, D) iteration by iteration."""
    logits: Tensor | None = None
    for step in range(iterations):
        couplings = None if logits is None else couple(logits)
        sums = weigh(votes, couplings)
        yield Step(logits, couplings, sums)
        if step < iterations - 1:
            logits = agree(votes, sums / length(sums).unsqueeze(-1))


def route(votes: Tensor, *, iterations: int) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D), any number I of them."""
    *_, last = iterate(votes, iterations)
    return squash_half(last.sums)


def trace(votes: Tensor, input_presence: Tensor, *, iterations: int) -> ClassTrace:
    """The same as `route`, with every iteration kept; `input_presence` (N, I) is passed on."""
    return _trace(list(iterate(votes, iterations)), votes, input_presence)


def _trace(steps: list[Step], votes: Tensor, input_presence: Tensor) -> ClassTrace:
    zeros = votes[..., 0] * 0
    logits = [zeros if step.logits is None else step.logits for step in steps]
    couplings = [couple(zeros) if step.couplings is None else step.couplings for step in steps]
    poses = torch.stack([squash_half(step.sums) for step in steps], dim=1)
    return ClassTrace(
        couplings=torch.stack(couplings, dim=1),
        logits=torch.stack(logits, dim=1),
        presence=length(poses),
        poses=poses,
        input_presence=input_presence,
        votes=votes,
    )
