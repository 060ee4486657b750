"""Efficient-CapsNet (Mazzia, Salvetti and Chiaberge 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from model.capsnet.attention import AttentionCapsNet, AttentionConfig, DepthwiseCells
from model.capsnet.stem import Conv
from tests.model.capsnet.networks import SMALL, count_encoder, lively, noise

PAIR_STEM = (Conv(32, 5), Conv(64, 3, 2), Conv(64, 3), Conv(128, 3, 2))


def test_the_encoder_has_the_paper_s_size() -> None:
    """161,824 parameters at 28x28, with 16 primary capsules of 8 numbers."""
    config = AttentionConfig()
    assert 161_824 == count_encoder(config)
    assert (16, 8, (1, 1, 28, 28, 0)) == (config.num_primary, config.primary_dim, config.grid)


def test_capsules_kept_at_their_places() -> None:
    """36x36 pixels and strides 1, 2, 1, 2: 6x6 places of 16 types, and 873,728 parameters."""
    config = AttentionConfig(height=36, width=36, stem=PAIR_STEM, primary="spatial")
    assert (6, 6, 16, 576) == (*config.grid[:2], config.primary_types, config.num_primary)
    assert 873_728 == count_encoder(config)


def test_the_depthwise_layer_is_a_grouped_convolution() -> None:
    """A product and a sum equal torch's convolution in groups of one channel, gradients too."""
    layer, maps = DepthwiseCells(6, 4 * 5), torch.randn(3, 6, 4, 5)
    nn.init.normal_(layer.bias)
    convolution = nn.Conv2d(6, 6, (4, 5), groups=6)
    with torch.no_grad():
        convolution.weight.copy_(layer.weight.view(6, 1, 4, 5))
        convolution.bias.copy_(layer.bias)  # type: ignore[union-attr]
    expected, actual = convolution(maps), layer(maps.flatten(2))
    torch.testing.assert_close(actual, expected.flatten(2))
    above = torch.randn(3, 6, 1)
    (wanted,) = torch.autograd.grad(expected.flatten(2), convolution.weight, above)
    (found,) = torch.autograd.grad(actual, layer.weight, above)
    torch.testing.assert_close(found, wanted.flatten(1))


@pytest.mark.parametrize("name", ["attention", "spatial attention"])
def test_a_primary_capsule_gathers_the_channels_of_its_type(name: str) -> None:
    """Capsule (type * rows + row) * columns + column has channels type * dim to that plus dim."""
    network = lively(SMALL[name])
    assert isinstance(network, AttentionCapsNet)
    config, images = network.config, noise(network.config, 2)
    maps = network.stem(images)
    if network.depthwise is not None:
        maps = network.depthwise(maps.flatten(2)).unsqueeze(-1)
    capsules = network.primary_capsules(images)
    rows, columns = maps.shape[2:]
    assert (rows, columns) == config.grid[:2]
    for t in range(config.primary_types):
        for y in range(rows):
            for x in range(columns):
                channels = slice(t * config.primary_dim, (t + 1) * config.primary_dim)
                s = maps[:, channels, y, x]
                norm = s.norm(dim=1, keepdim=True)
                expected = (1 - torch.exp(-norm)) * s / norm
                actual = capsules[:, (t * rows + y) * columns + x]
                torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"primary": "temporal"}, "'depthwise' or 'spatial'"),
        ({"primary_dim": 7}, "multiple of primary_dim"),
        ({"height": 10}, "too small"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], message: str) -> None:
    """When the network is configured."""
    with pytest.raises(ValueError, match=message):
        replace(AttentionConfig(), **change)
