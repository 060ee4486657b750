"""The non-linearities of capsules, and the length that stands for a probability."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-7
"""A constant that keeps square roots away from zero, where their gradient is infinite."""


def squash(capsules: Tensor) -> Tensor:
    """Shrink each vector to a length below one and keep its direction (Sabour 2017, equation 1).

    v = |s|^2 / (1 + |s|^2) * s / |s|; a unit vector is halved.

    Args:
        capsules: (..., D), float32 or bfloat16.

    Returns:
        (..., D), the same type.
    """
    squared = (capsules * capsules).sum(dim=-1, keepdim=True)
    return capsules * (squared / (1 + squared) * torch.rsqrt(squared + EPSILON))


def squash_exponential(capsules: Tensor) -> Tensor:
    """Squash: v = (1 - exp(-|s|)) s / |s| (Mazzia 2021, equation 1).

    Values and gradients are finite for long and for zero vectors.

    Args:
        capsules: (..., D).
    """
    norm = length(capsules).unsqueeze(-1)
    return capsules * ((1 - torch.exp(-norm)) / norm)


def squash_half(capsules: Tensor) -> Tensor:
    """Squash: v = |s|^2 / (0.5 + |s|^2) * s / |s| (Su 2018).

    Args:
        capsules: (..., D).
    """
    squared = (capsules * capsules).sum(dim=-1, keepdim=True)
    return capsules * (squared / (0.5 + squared) * torch.rsqrt(squared + EPSILON))


def length(capsules: Tensor) -> Tensor:
    """Return the length of each vector: the probability that the capsule's entity is present.

    Args:
        capsules: (..., D).

    Returns:
        (...); a zero vector has length 3e-4, so that its gradient is finite.
    """
    return torch.sqrt((capsules * capsules).sum(dim=-1) + EPSILON)
