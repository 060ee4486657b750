"""Votes: what each input capsule predicts for each class capsule (Sabour 2017, equation 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Votes(nn.Module):
    """u_hat = u W, rows times matrix; W is of each input capsule, or one for all.

    Args:
        capsules: I, the number of input capsules; None shares one transformation among any number.
        in_dim: size of an input capsule.
        classes: K.
        out_dim: D, the size of a vote.
        std: of the normal distribution, cut at twice this, that the weights are drawn from.
    """

    def __init__(
        self, capsules: int | None, *, in_dim: int, classes: int, out_dim: int, std: float = 0.1
    ) -> None:
        super().__init__()
        self.classes, self.out_dim = classes, out_dim
        self.training_dtype = torch.float32
        """Of products and votes in training mode; bfloat16 halves the memory that they move."""
        self.shared = capsules is None
        shape = (in_dim, classes * out_dim)
        self.weight = nn.Parameter(torch.empty(shape if capsules is None else (capsules, *shape)))
        """W, (I, in_dim, K * D), or (in_dim, K * D) if it is shared."""
        nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)

    def forward(self, capsules: Tensor) -> Tensor:
        """(N, I, in_dim) capsules to (N, K, I, D) votes; in float32, or in training as set."""
        count = capsules.shape[1]
        rounded = self.training and self.training_dtype == torch.bfloat16
        weight = self.weight.bfloat16() if rounded else self.weight
        dtype = torch.bfloat16 if rounded else torch.float32
        with torch.autocast(capsules.device.type, enabled=False):
            factors = capsules.to(weight.dtype)
            if self.shared:
                products = torch.matmul(factors, weight).to(dtype)  # (N, I, K * D)
                split = products.reshape(-1, count, self.classes, self.out_dim)
                return split.transpose(1, 2).contiguous()
            products = torch.matmul(factors.transpose(0, 1), weight).to(dtype)  # (I, N, K * D)
        split = products.reshape(count, -1, self.classes, self.out_dim)
        return split.permute(1, 2, 0, 3).contiguous()
