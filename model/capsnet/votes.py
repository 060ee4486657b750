"""Votes: what each primary capsule predicts for each class capsule (Sabour 2017, equation 2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Votes(nn.Module):
    """u_hat = u W, rows times matrix; W is of each primary capsule, or one for all.

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

    def factored(self, capsules: Tensor) -> FactoredVotes:
        """The votes of (N, I, in_dim) capsules, each with its own W, without computing them."""
        count, size = capsules.shape[1:]
        split = self.weight.reshape(count, size, self.classes, self.out_dim)
        weight = split.permute(2, 1, 0, 3).flatten(1, 2)
        return FactoredVotes(capsules.transpose(1, 2).contiguous(), weight)


class FactoredVotes(NamedTuple):
    """Factored votes u_ki = p_i W_ki, of which routing needs sums alone.

    With all p_i in one row, sum_i c_ki u_ki is (c_k p) W_k, and <u_ki, v> is <p_i, W_ki v>: one
    matrix product for each class. That makes training faster, and a single image slower: each
    product reads all of W.
    """

    capsules: Tensor
    """The capsules p, (N, E, I): inputs last, so that products by element run along them."""
    weight: Tensor
    """The weights W, (K, E * I, D)."""

    def total(self) -> Tensor:
        """Return sum_i u_ki, (N, K, D)."""
        return self._multiply(self.capsules.flatten(1))

    def weigh(self, couplings: Tensor) -> Tensor:
        """Return sum_i c_ki u_ki: (N, K, I) to (N, K, D)."""
        by_class = couplings.transpose(0, 1)  # (K, N, I)
        return self._multiply((by_class[:, :, None] * self.capsules).flatten(2))

    def agree(self, poses: Tensor) -> Tensor:
        """Return <u_ki, v_k>: (N, K, D) to (N, K, I)."""
        by_class = poses.transpose(0, 1).to(self.weight.dtype)  # (K, N, D)
        answers = (by_class @ self.weight.transpose(1, 2)).to(self.capsules.dtype)
        split = answers.view(*answers.shape[:2], *self.capsules.shape[1:])  # (K, N, E, I)
        return (split * self.capsules).sum(dim=2).transpose(0, 1)

    def _multiply(self, rows: Tensor) -> Tensor:
        """(N, E * I) or (K, N, E * I) times W, (N, K, D)."""
        products = rows.to(self.weight.dtype) @ self.weight
        return products.to(self.capsules.dtype).transpose(0, 1)
