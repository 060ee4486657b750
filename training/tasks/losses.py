"""What a network is trained to make small."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

PRESENT = 0.9
"""m+, the length a capsule should exceed where its class is present."""
ABSENT = 0.1
"""m-, the length it should stay below where it is not."""
ABSENT_WEIGHT = 0.5
"""lambda, so that absent classes do not shrink all lengths at the start."""


class Losses(NamedTuple):
    """Both parts of the loss of one batch, averaged over it."""

    margin: Tensor
    """Of naming what is there; a cross-entropy where the network has no capsules."""
    reconstruction: Tensor
    """Summed over pixels; zero where reconstruction has no weight."""


def margin_loss(lengths: Tensor, present: Tensor) -> Tensor:
    """Paper, equation 4: squared hinges, summed over classes, averaged over the batch.

    Args:
        lengths: (N, K) capsule lengths, as they are (no softmax).
        present: (N, K), 1 where the class is in the image and 0 elsewhere; several may be.

    Returns:
        scalar.
    """
    missing = present * (PRESENT - lengths).clamp_min(0).square()
    surplus = (1 - present) * (lengths - ABSENT).clamp_min(0).square()
    return (missing + ABSENT_WEIGHT * surplus).sum(dim=1).mean()


def reconstruction_loss(reconstructions: Tensor, images: Tensor) -> Tensor:
    """Squared error summed over pixels, averaged over the batch (paper, section 4.1).

    Args:
        reconstructions: (N, 1, H, W) in [0, 1].
        images: the same shape.

    Returns:
        scalar; 784 times the mean squared error at 28x28.
    """
    return (reconstructions - images).square().sum(dim=(1, 2, 3)).mean()
