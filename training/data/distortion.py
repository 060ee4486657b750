"""Training images turned, scaled, sheared and bent at random, on the training device.

Affine and elastic distortion as in Simard, Steinkraus and Platt, "Best Practices for Convolutional
Neural Networks Applied to Visual Document Analysis" (2003). The elastic one moves the nodes of a
coarse net, each at random, and what lies between them smoothly (Ronneberger, Fischer and Brox,
"U-Net", 2015).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

NODES = 5
"""Of the net, down and across; the outermost lie in the corners."""
NUMBERS = 4 + 2 * NODES * NODES
"""Random numbers that an image needs: turn, height, width and shear, then its nodes' moves."""
STEPS = 1000
"""Random numbers are whole, from -STEPS to STEPS."""
_TURN = math.radians(20)
_SCALE = 0.2
_SHEAR = 0.2


class Distortion(NamedTuple):
    """How far images are distorted, each way. Everything is drawn uniformly."""

    affine: float = 0.0
    """As a share of affNIST's ranges: turned by 20 degrees, height and width each changed by a
    fifth, sheared by 0.2 of the height."""
    elastic_px: float = 0.0
    """By how many pixels a node of the net moves at most, down and across."""


NOT_DISTORTED = Distortion()


def distort(images: Tensor, numbers: Tensor, distortion: Distortion) -> Tensor:
    """Distort each image by its own numbers; zeros move in.

    Args:
        images: (B, H, H) float32.
        numbers: (B, NUMBERS) int64, each within [-STEPS, STEPS].

    Returns:
        (B, H, H) float32, each pixel interpolated between four.
    """
    count, size, _ = images.shape
    shares = numbers.float() / STEPS
    nodes = shares[:, 4:].view(count, 2, NODES, NODES) * (2 * distortion.elastic_px / size)
    moves = functional.interpolate(nodes, (size, size), mode="bicubic", align_corners=True)
    places = functional.affine_grid(
        _matrices(shares[:, :4] * distortion.affine), [count, 1, size, size], align_corners=False
    )  # (B, H, H, 2): right and down, from -1 to 1 between the outer edges
    places = places + moves.permute(0, 2, 3, 1)
    return functional.grid_sample(images[:, None], places, align_corners=False).squeeze(1)


def _matrices(shares: Tensor) -> Tensor:
    """Where places (right, down) of images come from that are scaled, then sheared, then turned.

    Args:
        shares: (B, 4): of the range of turn, height, width and shear.

    Returns:
        (B, 2, 3).
    """
    turn, height, width, shear = shares.unbind(1)
    cosine, sine = (turn * _TURN).cos(), (turn * _TURN).sin()
    shear, width, height = shear * _SHEAR, 1 + width * _SCALE, 1 + height * _SCALE
    nothing = torch.zeros_like(turn)
    right = torch.stack(((cosine + shear * sine) / width, (sine - shear * cosine) / width, nothing))
    down = torch.stack((-sine / height, cosine / height, nothing))
    return torch.stack((right, down)).permute(2, 0, 1)
