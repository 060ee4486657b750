"""Routing as clustering: k-means with a softmax (Su 2018, "Another new Capsule").

In each iteration the class capsules are the weighted means of the votes, as directions, and the
logits are the agreement with them: replaced, not added up. The last sums are squashed.
"""

from __future__ import annotations

from torch import Tensor

from model.capsnet.routing import by_agreement
from model.capsnet.routing.by_agreement import agree
from model.capsnet.squash import length, squash_half
from model.capsnet.votes import FactoredVotes


class Routing(by_agreement.Routing):
    """Routing as clustering, of any number of votes."""

    squash = staticmethod(squash_half)

    def next_logits(
        self, logits: Tensor | None, votes: Tensor | FactoredVotes, sums: Tensor, poses: Tensor
    ) -> Tensor:
        """Return the agreement of votes with the directions of their sums, (N, K, I)."""
        del logits, poses
        return agree(votes, sums / length(sums).unsqueeze(-1))
