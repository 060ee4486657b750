"""Routing by agreement (Sabour 2017, procedure 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.squash import length, squash
from model.capsnet.votes import FactoredVotes
from model.outputs import ClassTrace


class Routing(nn.Module):
    """Routing by agreement. It is a module so that a hook or a subclass reaches its couplings.

    Gradients flow through all iterations.

    Args:
        iterations: R, at least one; may be changed later.
    """

    squash = staticmethod(squash)

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.couplings = nn.Softmax(dim=1)
        """Logits b to couplings c, (N, K, I), of every iteration except the first, where all are
        1 / K."""

    def forward(self, votes: Tensor | FactoredVotes, bias: Tensor | None = None) -> Tensor:
        """Return the class capsules (N, K, D).

        Args:
            votes: (N, K, I, D), or their factors.
            bias: (K, D), added before the squash.
        """
        *_, last = self.iterate(votes, bias)
        return last.poses

    def trace(
        self, votes: Tensor, input_presence: Tensor, bias: Tensor | None = None
    ) -> ClassTrace[Tensor]:
        """Route as `forward` does, and keep every iteration.

        Inputs' presence (N, I) is passed on.
        """
        return stack_steps(list(self.iterate(votes, bias)), votes, input_presence)

    def iterate(self, votes: Tensor | FactoredVotes, bias: Tensor | None) -> Iterator[Step]:
        """Route votes (N, K, I, D), or their factors, iteration by iteration."""
        logits: Tensor | None = None
        for step in range(self.iterations):
            couplings = None if logits is None else self.couplings(logits)
            sums = weigh(votes, couplings)
            poses = self.squash(sums if bias is None else sums + bias)
            yield Step(logits, couplings, poses)
            if step < self.iterations - 1:
                logits = self.next_logits(logits, votes, sums, poses)

    def next_logits(
        self, logits: Tensor | None, votes: Tensor | FactoredVotes, sums: Tensor, poses: Tensor
    ) -> Tensor:
        """Add the agreement of votes with the poses to the logits (N, K, I)."""
        del sums
        agreement = agree(votes, poses)
        return agreement if logits is None else logits + agreement


class Step(NamedTuple):
    """The tensors of one iteration."""

    logits: Tensor | None
    """The logits b, (N, K, I); None for zeros."""
    couplings: Tensor | None
    """The couplings c, (N, K, I); None for 1 / K."""
    poses: Tensor
    """The poses v, (N, K, D)."""


def stack_steps(steps: list[Step], votes: Tensor, input_presence: Tensor) -> ClassTrace[Tensor]:
    """Stack all iterations to one trace."""
    zeros = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    logits = [zeros if step.logits is None else step.logits for step in steps]
    couplings = [
        zeros.softmax(dim=1) if step.couplings is None else step.couplings for step in steps
    ]
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
    """Return sum_i u_ki: (N, K, I, D) to (N, K, D)."""
    if isinstance(votes, FactoredVotes):
        return votes.total()
    # In the products' order of axes onnxruntime needs no transposed copy of the votes.
    return votes.movedim(2, 0).sum(dim=0)


def weigh(votes: Tensor | FactoredVotes, couplings: Tensor | None) -> Tensor:
    """Return s_k = sum_i c_ki u_ki: (N, K, I, D) and (N, K, I) to (N, K, D)."""
    if couplings is None:  # equal: a plain sum, one product less
        sums = total(votes)
        return sums / sums.shape[1]
    if isinstance(votes, FactoredVotes):
        return votes.weigh(couplings)
    return torch.matmul(couplings.unsqueeze(2), votes).squeeze(2)


def agree(votes: Tensor | FactoredVotes, poses: Tensor) -> Tensor:
    """Return <u_ki, v_k>: (N, K, I, D) and (N, K, D) to (N, K, I)."""
    if isinstance(votes, FactoredVotes):
        return votes.agree(poses)
    return torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)
