"""Self-attention routing, without iterations (Mazzia, Salvetti and Chiaberge 2021, equation 3)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from model.capsnet.network import ClassTrace
from model.capsnet.routing.by_agreement import agree, total, weigh
from model.capsnet.squash import length, squash_exponential
from model.capsnet.votes import FactoredVotes


class Couplings(nn.Module):
    """Logits A (N, K, I) and B (K, I) to couplings: the softmax of A over classes, plus B."""

    def forward(self, logits: Tensor, coupling_bias: Tensor) -> Tensor:
        """(N, K, I)."""
        return logits.softmax(dim=1) + coupling_bias


class Routing(nn.Module):
    """Self-attention routing as a module, so that a hook or a subclass reaches its couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = Couplings()

    def forward(self, votes: Tensor | FactoredVotes, coupling_bias: Tensor) -> Tensor:
        """Class capsules (N, K, D): see `route`."""
        return squash_exponential(weigh(votes, self.couplings(attend(votes), coupling_bias)))

    def trace(self, votes: Tensor, coupling_bias: Tensor, input_presence: Tensor) -> ClassTrace:
        """The one iteration: see `trace`."""
        logits = attend(votes)
        return _trace(logits, self.couplings(logits, coupling_bias), votes, input_presence)


def attend(votes: Tensor | FactoredVotes) -> Tensor:
    """Logits A_ki = u_ki . sum_j u_kj / sqrt(D), (N, K, I), of votes or their factors."""
    sums = total(votes)
    return agree(votes, sums) / math.sqrt(sums.shape[-1])


def route(votes: Tensor | FactoredVotes, coupling_bias: Tensor) -> Tensor:
    """Class capsules v_k = squash(sum_i (C_ki + B_ki) u_ki), where C is the softmax of A over k.

    Args:
        votes: u, (N, K, I, D), or their factors.
        coupling_bias: B, (K, I): learned, the same for every image. It is added after the softmax,
            so couplings may be negative and need not sum to one.

    Returns:
        (N, K, D).
    """
    couplings = attend(votes).softmax(dim=1) + coupling_bias
    return squash_exponential(weigh(votes, couplings))


def trace(votes: Tensor, coupling_bias: Tensor, input_presence: Tensor) -> ClassTrace:
    """The same as `route`, with its one iteration kept; `input_presence` (N, I) is passed on."""
    logits = attend(votes)
    return _trace(logits, logits.softmax(dim=1) + coupling_bias, votes, input_presence)


def _trace(logits: Tensor, couplings: Tensor, votes: Tensor, input_presence: Tensor) -> ClassTrace:
    poses = squash_exponential(weigh(votes, couplings))
    return ClassTrace(
        couplings=couplings.unsqueeze(1),
        logits=logits.unsqueeze(1),
        presence=length(poses).unsqueeze(1),
        poses=poses.unsqueeze(1),
        input_presence=input_presence,
        votes=votes,
    )
