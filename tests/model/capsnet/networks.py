"""Small networks of every family for the tests of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.capsnet import Network, NetworkConfig, build
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv

SIZES: dict[str, Any] = {
    "channels": 3,
    "height": 17,
    "width": 20,
    "num_classes": 5,
    "decoder_hidden": (7, 8),
}
"""Colour images that are not square; no two sizes are equal."""
SMALL: dict[str, NetworkConfig] = {
    "dynamic": DynamicConfig(
        **SIZES,
        stem=(Conv(9, 3),),
        class_dim=6,
        primary_types=3,
        primary_dim=2,
        primary_kernel=5,
        class_bias=True,
    ),
    "attention": AttentionConfig(
        **SIZES, stem=(Conv(6, 3), Conv(12, 3, 2)), primary_dim=4, class_dim=9
    ),
    "spatial attention": AttentionConfig(
        **SIZES, stem=(Conv(6, 3), Conv(12, 3, 2)), primary="spatial", primary_dim=4, class_dim=9
    ),
    "drawing attention": AttentionConfig(
        **{**SIZES, "decoder_hidden": (7,)},
        decoder_channels=(6, 4),
        stem=(Conv(6, 3), Conv(12, 3, 2)),
        primary_dim=4,
        class_dim=9,
    ),
    "shared": SharedConfig(**SIZES, stem=(Conv(6, 3, pool=2), Conv(11, 3)), class_dim=9),
    "matrix": MatrixConfig(
        **SIZES, stem=(Conv(4, 5, 2),), primary_types=2, conv_caps=(3, 4), inverse_temperature=0.1
    ),
    "baseline": BaselineConfig(**SIZES, convs=(6, 7), kernels=(5, 3), pooling=True, hidden=(9,)),
}
"""A network of each family, and of self-attention both kinds of primary capsules and of decoder."""

TINY: dict[str, NetworkConfig] = {
    "dynamic": DynamicConfig(stem=(Conv(8, 9),), primary_types=2, decoder_hidden=(16, 16)),
    "attention": AttentionConfig(
        stem=(Conv(8, 5, 2), Conv(16, 5, 2)), primary="spatial", decoder_hidden=(16, 16)
    ),
    "shared": SharedConfig(
        stem=(Conv(8, 5, 2), Conv(16, 3, pool=2)), routing_iterations=2, decoder_hidden=(16, 16)
    ),
    "matrix": MatrixConfig(
        stem=(Conv(4, 5, 2),),
        primary_types=2,
        conv_caps=(2,),
        routing_iterations=2,
        inverse_temperature=0.1,
        decoder_hidden=(16, 16),
    ),
    "baseline": BaselineConfig(convs=(4,), kernels=(5,), pooling=True, hidden=(8,)),
}
"""A network of each family for 28x28 digits, small enough to be exported in seconds."""


def lively(config: NetworkConfig) -> Network:
    """A network in evaluation mode, drawn so that its answers differ from image to image."""
    network = build(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name == "votes.weight":
                parameter.mul_(5)
        network.train()
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        network(torch.rand(16, *config.image_shape))  # for batch normalisation
    return network.eval()


def noise(config: NetworkConfig, count: int = 4) -> Tensor:
    """Images of noise (N, C, H, W)."""
    return torch.rand(count, *config.image_shape)


def count_parameters(module: nn.Module) -> int:
    """Numbers that are trained."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_encoder(config: NetworkConfig) -> int:
    """Parameters of a network of this configuration, but for its decoder's."""
    with torch.device("meta"):
        network = build(config)
    return sum(p.numel() for name, p in network.named_parameters() if "decoder." not in name)
