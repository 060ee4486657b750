"""Self-attention routing, without iterations (Mazzia, Salvetti and Chiaberge 2021, equation 5)."""

from __future__ import annotations

import math

from torch import Tensor

from model.capsnet.network import ClassTrace
from model.capsnet.routing.by_agreement import agree, total, weigh
from model.capsnet.squash import length, squash_exponential
from model.capsnet.votes import FactoredVotes


def attend(votes: Tensor | FactoredVotes, bias: Tensor) -> Tensor:
    """Logits A_ki + B_ki (N, K, I), where A_ki = u_ki . sum_j u_kj / sqrt(D).

    Args:
        votes: (N, K, I, D), or their factors.
        bias: B, (K, I), learned.
    """
    sums = total(votes)
    return agree(votes, sums) / math.sqrt(sums.shape[-1]) + bias


def route(votes: Tensor | FactoredVotes, bias: Tensor) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D) and a learned bias (K, I)."""
    couplings = attend(votes, bias).softmax(dim=1)
    return squash_exponential(weigh(votes, couplings))


def trace(votes: Tensor, bias: Tensor, input_presence: Tensor) -> ClassTrace:
    """The same as `route`, with its one iteration kept; `input_presence` (N, I) is passed on."""
    logits = attend(votes, bias)
    couplings = logits.softmax(dim=1)
    poses = squash_exponential(weigh(votes, couplings))
    return ClassTrace(
        couplings=couplings.unsqueeze(1),
        logits=logits.unsqueeze(1),
        presence=length(poses).unsqueeze(1),
        poses=poses.unsqueeze(1),
        input_presence=input_presence,
        votes=votes,
    )
