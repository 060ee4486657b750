"""Self-attention routing, without iterations (Mazzia, Salvetti and Chiaberge 2021, equation 3)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from model.capsnet.routing.by_agreement import agree, total, weigh
from model.capsnet.squash import length, squash_exponential
from model.capsnet.votes import FactoredVotes
from model.outputs import ClassTrace


class Couplings(nn.Module):
    """Maps logits A (N, K, I) and B (K, I) to couplings: the softmax of A over classes, plus B."""

    def forward(self, logits: Tensor, coupling_bias: Tensor) -> Tensor:
        """Return the couplings (N, K, I)."""
        return logits.softmax(dim=1) + coupling_bias


class Routing(nn.Module):
    """Self-attention routing. It is a module so that a hook or a subclass reaches its couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = Couplings()

    def forward(self, votes: Tensor | FactoredVotes, coupling_bias: Tensor) -> Tensor:
        """Return class capsules v_k = squash(sum_i (C_ki + B_ki) u_ki), C the softmax of A over k.

        Args:
            votes: u, (N, K, I, D), or their factors.
            coupling_bias: B, (K, I): learned, the same for every image. It is added after the
                softmax, so couplings may be negative and need not sum to one.

        Returns:
            (N, K, D).
        """
        return squash_exponential(weigh(votes, self.couplings(attend(votes), coupling_bias)))

    def trace(
        self, votes: Tensor, coupling_bias: Tensor, input_presence: Tensor
    ) -> ClassTrace[Tensor]:
        """Route as `forward` does, and keep the iteration. Inputs' presence (N, I) is passed on."""
        logits = attend(votes)
        couplings = self.couplings(logits, coupling_bias)
        poses = squash_exponential(weigh(votes, couplings))
        return ClassTrace(
            couplings=couplings.unsqueeze(1),
            logits=logits.unsqueeze(1),
            presence=length(poses).unsqueeze(1),
            poses=poses.unsqueeze(1),
            input_presence=input_presence,
            votes=votes,
        )


def attend(votes: Tensor | FactoredVotes) -> Tensor:
    """Return the logits A_ki = <u_ki, sum_j u_kj> / sqrt(D), (N, K, I), of votes or factors."""
    sums = total(votes)
    return agree(votes, sums) / math.sqrt(sums.shape[-1])
