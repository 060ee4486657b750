"""How a bundle stores weights: in 16 bits, or in 8 bits and one scale for each channel.

Storage alone: a loaded graph widens them once and computes in its own precision.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from model.capsnet import CapsNet

SMALLEST_STORED = 1024
"""Elements from which a weight goes to weights.bin; smaller ones stay in the graph, as they are."""
CHANNEL_AXES = {
    "primary.conv.weight": 0,  # filters
    "classes.weight": 0,  # primary capsules
    "decoder.class_weight": 2,  # units of the first layer, for all classes
    "decoder.hidden.weight": 0,
    "decoder.pixels.weight": 0,
}
"""The weights that 8 bits are for, and the axis of their channels. The first convolution has a
four-hundredth of the numbers and, in 8 bits, can move lengths more than all others together."""
_LARGEST_CODE = 127
_SCALE_BITS = 16


class StoredWeight(NamedTuple):
    """A weight as weights.bin holds it."""

    numbers: Tensor
    """float16, or int8 codes from -127 to 127."""
    scales: Tensor | None = None
    """Of codes: (channels,), float32."""
    axis: int = 0
    """That of the channels."""

    def widen(self) -> Tensor:
        """The weight in float32."""
        wide = self.numbers.float()
        if self.scales is None:
            return wide
        return (wide.movedim(self.axis, -1) * self.scales).movedim(-1, self.axis)


@torch.no_grad()
def narrow(network: CapsNet, bits: int) -> dict[str, StoredWeight]:
    """A network's large weights as they are stored, by parameter.

    Raises:
        ValueError: `bits` are neither 8 nor 16.
    """
    if bits not in (8, 16):
        raise ValueError(f"weights are stored in 8 or 16 bits, not in {bits}")
    return {
        name: quantise(parameter, CHANNEL_AXES[name])
        if bits == 8 and name in CHANNEL_AXES
        else StoredWeight(parameter.half())
        for name, parameter in network.named_parameters()
        if parameter.numel() >= SMALLEST_STORED
    }


@torch.no_grad()
def round_weights(network: CapsNet, bits: int) -> None:
    """Give a network, in place, the weights that a bundle of it holds."""
    for name, stored in narrow(network, bits).items():
        network.get_parameter(name).copy_(stored.widen())


def quantise(weight: Tensor, axis: int) -> StoredWeight:
    """The nearest codes, where the largest weight of each channel is 127 or -127.

    Symmetric: zero stays zero, and weights spread about it evenly enough that a zero point would
    make steps little finer. Scales have 16 significant bits, so that a code times its scale is
    exact in float32, and quantising the product gives the same code and scale again.

    Args:
        weight: of any shape, float32.
        axis: that of the channels.
    """
    largest = weight.abs().movedim(axis, 0).flatten(1).amax(dim=1)
    mantissa, exponent = torch.frexp(largest / _LARGEST_CODE)
    scales = torch.ldexp((mantissa * 2**_SCALE_BITS).round(), exponent - _SCALE_BITS)
    codes = (weight.movedim(axis, -1) / scales.where(scales > 0, 1)).round()
    return StoredWeight(codes.movedim(-1, axis).to(torch.int8).contiguous(), scales, axis)
