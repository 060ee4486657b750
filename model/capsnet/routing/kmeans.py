"""Routing as clustering: k-means with a softmax (Su 2018, "Another new Capsule").

In each iteration the class capsules are the weighted means of the votes, as directions, and the
logits are the agreement with them: replaced, not added up. The last sums are squashed.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from model.capsnet.routing.by_agreement import Step, agree, stack_steps, weigh
from model.capsnet.squash import length, squash_half
from model.outputs import ClassTrace


class Routing(nn.Module):
    """Routing as clustering. It is a module so that a hook or a subclass reaches its couplings.

    Args:
        iterations: R, at least one; may be changed later.
    """

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.couplings = nn.Softmax(dim=1)
        """Logits to couplings, (N, K, I), of every iteration except the first (all 1 / K)."""

    def forward(self, votes: Tensor) -> Tensor:
        """Return the class capsules (N, K, D) of votes (N, K, I, D), any number I of them."""
        *_, last = self.iterate(votes)
        return last.poses

    def trace(self, votes: Tensor, input_presence: Tensor) -> ClassTrace[Tensor]:
        """Route as `forward` does, and keep every iteration.

        Inputs' presence (N, I) is passed on.
        """
        return stack_steps(list(self.iterate(votes)), votes, input_presence)

    def iterate(self, votes: Tensor) -> Iterator[Step]:
        """Route votes (N, K, I, D) iteration by iteration."""
        logits: Tensor | None = None
        for step in range(self.iterations):
            couplings = None if logits is None else self.couplings(logits)
            sums = weigh(votes, couplings)
            yield Step(logits, couplings, squash_half(sums))
            if step < self.iterations - 1:
                logits = agree(votes, sums / length(sums).unsqueeze(-1))
