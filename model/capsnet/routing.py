"""Votes, and routing algorithms that make class capsules and a trace of them.

Votes are (N, K, I, D): input capsule i's prediction for class capsule k. Each algorithm follows one
paper; all are batched matrix products without Einsum, loops or scattering in the exported graph.
They are modules, so that a hook or a subclass reaches their couplings. `model.capsnet.em` has EM
routing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.capsnet.squash import length, squash, squash_exponential, squash_half
from model.outputs import ClassTrace


class Votes(nn.Module):
    """u_hat = u W, rows times matrix (Sabour 2017, equation 2).

    W is of each primary capsule, or one for all.

    Args:
        capsules: I, the number of primary capsules; None: any number, with one transformation.
        in_dim: size of a primary capsule.
        classes: K.
        out_dim: D, the size of a vote.
        std: of the normal distribution, cut at twice this, that W is sampled from. It should fall
            with the square root of I: a larger one saturates the squash, which then passes hardly
            any gradient.
    """

    def __init__(
        self, capsules: int | None, *, in_dim: int, classes: int, out_dim: int, std: float
    ) -> None:
        super().__init__()
        self.classes, self.out_dim = classes, out_dim
        self.shared = capsules is None
        shape = (in_dim, classes * out_dim)
        self.weight = nn.Parameter(torch.empty(shape if capsules is None else (capsules, *shape)))
        """W, (I, in_dim, K * D), or (in_dim, K * D) if it is shared."""
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)

    def forward(self, capsules: Tensor) -> Tensor:
        """Map capsules (N, I, in_dim) to votes (N, K, I, D), float32."""
        count = capsules.shape[1]
        with torch.autocast(capsules.device.type, enabled=False):
            factors = capsules.to(self.weight.dtype)
            if self.shared:
                products = torch.matmul(factors, self.weight).float()  # (N, I, K * D)
                split = products.reshape(-1, count, self.classes, self.out_dim)
                return split.transpose(1, 2).contiguous()
            products = torch.matmul(factors.transpose(0, 1), self.weight).float()  # (I, N, K * D)
        split = products.reshape(count, -1, self.classes, self.out_dim)
        return split.permute(1, 2, 0, 3).contiguous()


class Step(NamedTuple):
    """The tensors of one iteration of routing."""

    logits: Tensor | None
    """The logits b, (N, K, I); None for zeros."""
    couplings: Tensor | None
    """The couplings c, (N, K, I); None for 1 / K."""
    poses: Tensor
    """The poses v, (N, K, D)."""


class Routing(nn.Module):
    """Makes class capsules of votes. Each algorithm says how it iterates."""

    def iterate(self, votes: Tensor, bias: Tensor | None) -> Iterator[Step]:
        """Route votes (N, K, I, D) iteration by iteration, perhaps with a learned bias."""
        raise NotImplementedError

    def forward(self, votes: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the class capsules (N, K, D) of votes (N, K, I, D)."""
        *_, last = self.iterate(votes, bias)
        return last.poses

    def trace(
        self, votes: Tensor, input_presence: Tensor, bias: Tensor | None = None
    ) -> ClassTrace[Tensor]:
        """Route as `forward` does, and keep every iteration.

        Inputs' presence (N, I) is passed on.
        """
        steps = list(self.iterate(votes, bias))
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


class RoutingByAgreement(Routing):
    """Routing by agreement (Sabour 2017, procedure 1). Gradients flow through all iterations.

    Args:
        iterations: R, at least one; may be changed later.
    """

    def __init__(self, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.couplings = nn.Softmax(dim=1)
        """Logits b to couplings c, (N, K, I), of every iteration except the first, where all are
        1 / K."""

    def iterate(self, votes: Tensor, bias: Tensor | None) -> Iterator[Step]:
        """Route votes (N, K, I, D); a bias (K, D) is added before the squash."""
        b = c = None
        for step in range(self.iterations):
            s = weigh(votes, c)
            v = squash(s if bias is None else s + bias)
            yield Step(b, c, v)
            if step < self.iterations - 1:
                agreement = agree(votes, v)
                b = agreement if b is None else b + agreement
                c = self.couplings(b)


class RoutingByKMeans(RoutingByAgreement):
    """Routing as clustering: k-means with a softmax (Su 2018, "Another new Capsule").

    In each iteration the class capsules are the weighted means of the votes, as directions, and the
    logits are the agreement with them: replaced, not added up. The last sums are squashed.
    """

    def iterate(self, votes: Tensor, bias: Tensor | None) -> Iterator[Step]:
        """Route votes (N, K, I, D); a bias (K, D) is added before the squash."""
        b = c = None
        for step in range(self.iterations):
            s = weigh(votes, c)
            yield Step(b, c, squash_half(s if bias is None else s + bias))
            if step < self.iterations - 1:
                b = agree(votes, s / length(s).unsqueeze(-1))
                c = self.couplings(b)


class SelfAttention(Routing):
    """Routing without iterations (Mazzia, Salvetti and Chiaberge 2021, equation 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = BiasedSoftmax()

    def iterate(self, votes: Tensor, bias: Tensor | None) -> Iterator[Step]:
        """Route once: v_k = squash(sum_i (C_ki + B_ki) u_ki), C the softmax of A over k.

        Args:
            votes: u, (N, K, I, D).
            bias: B, (K, I): learned, the same for every image. It is added after the softmax, so
                couplings may be negative and need not sum to one.
        """
        logits = attend(votes)
        couplings = self.couplings(logits, bias)
        yield Step(logits, couplings, squash_exponential(weigh(votes, couplings)))


class BiasedSoftmax(nn.Module):
    """Maps logits A (N, K, I) and B (K, I) to couplings: the softmax of A over classes, plus B."""

    def forward(self, logits: Tensor, coupling_bias: Tensor) -> Tensor:
        """Return the couplings (N, K, I)."""
        return logits.softmax(dim=1) + coupling_bias


def attend(votes: Tensor) -> Tensor:
    """Return the logits A_ki = <u_ki, sum_j u_kj> / sqrt(D), (N, K, I)."""
    sums = total(votes)
    return agree(votes, sums) / math.sqrt(sums.shape[-1])


def total(votes: Tensor) -> Tensor:
    """Return sum_i u_ki: (N, K, I, D) to (N, K, D)."""
    # In the products' order of axes onnxruntime needs no transposed copy of the votes.
    return votes.movedim(2, 0).sum(dim=0)


def weigh(votes: Tensor, couplings: Tensor | None) -> Tensor:
    """Return s_k = sum_i c_ki u_ki: (N, K, I, D) and (N, K, I) to (N, K, D)."""
    if couplings is None:  # equal: a plain sum, one product less
        sums = total(votes)
        return sums / sums.shape[1]
    return torch.matmul(couplings.unsqueeze(2), votes).squeeze(2)


def agree(votes: Tensor, poses: Tensor) -> Tensor:
    """Return <u_ki, v_k>: (N, K, I, D) and (N, K, D) to (N, K, I)."""
    return torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)
