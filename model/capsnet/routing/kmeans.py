"""Routing as clustering: k-means with a softmax (Su 2018, "Another new Capsule").

In each iteration the class capsules are the weighted means of the votes, as directions, and the
logits are the agreement with them: replaced, not added up. The last sums are squashed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from model.capsnet.network import ClassTrace
from model.capsnet.routing.by_agreement import agree, weigh
from model.capsnet.squash import length, squash_half


def iterate(votes: Tensor, iterations: int) -> Iterator[tuple[Tensor | None, Tensor]]:
    """Logits (N, K, I), None for zeros, and sums (N, K, D) by iteration, of votes (N, K, I, D)."""
    logits: Tensor | None = None
    for step in range(iterations):
        sums = weigh(votes, None if logits is None else logits.softmax(dim=1))
        yield logits, sums
        if step < iterations - 1:
            logits = agree(votes, sums / length(sums).unsqueeze(-1))


def route(votes: Tensor, *, iterations: int) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D), any number I of them."""
    *_, (_, sums) = iterate(votes, iterations)
    return squash_half(sums)


def trace(votes: Tensor, input_presence: Tensor, *, iterations: int) -> ClassTrace:
    """The same as `route`, with every iteration kept; `input_presence` (N, I) is passed on."""
    zeros = votes[..., 0] * 0
    steps = list(iterate(votes, iterations))
    logits = torch.stack([zeros if logits is None else logits for logits, _ in steps], dim=1)
    poses = torch.stack([squash_half(sums) for _, sums in steps], dim=1)
    return ClassTrace(
        couplings=logits.softmax(dim=2),
        logits=logits,
        presence=length(poses),
        poses=poses,
        input_presence=input_presence,
        votes=votes,
    )
