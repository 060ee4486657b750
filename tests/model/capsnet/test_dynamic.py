"""Sabour, Frosst and Hinton (2017), and the ways in which their code differs from their text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.capsnet import build
from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig, PrimaryCapsules
from tests.model.capsnet.networks import SMALL, count_parameters, lively, noise
from training.recipes import PRESETS


@pytest.fixture
def config() -> DynamicConfig:
    config = SMALL["dynamic"]
    assert isinstance(config, DynamicConfig)
    return config


@pytest.fixture
def network(config: DynamicConfig) -> DynamicCapsNet:
    return dynamic(config)


def dynamic(config: DynamicConfig) -> DynamicCapsNet:
    network = lively(config)
    assert isinstance(network, DynamicCapsNet)
    return network


def features_of(config: DynamicConfig, batch: int) -> Tensor:
    """Noise where the primary capsules' convolution reads it; the 3x3 stem takes two pixels."""
    return torch.randn(batch, 9, config.height - 2, config.width - 2)


@pytest.mark.parametrize(("size", "expected"), [(28, 8_215_568), (36, 11_361_808)])
def test_the_network_has_the_paper_s_size(size: int, expected: int) -> None:
    """Defaults are the paper's network; 36 pixels are its MultiMNIST one."""
    with torch.device("meta"):
        assert expected == count_parameters(build(DynamicConfig(height=size, width=size)))


def slow_primary_capsules(maps: Tensor, bias: Tensor, config: DynamicConfig) -> list[list[float]]:
    """The capsules of one image from its maps (C, H, W) without bias, one number at a time."""
    rows, columns, *_ = config.grid
    dim = config.primary_dim
    capsules: list[list[float]] = [[] for _ in range(config.num_primary)]
    for t in range(config.primary_types):
        for y in range(rows):
            for x in range(columns):
                channels = [t * dim + d for d in range(dim)]
                s = [config.primary_scale * maps[c, y, x].item() + bias[c].item() for c in channels]
                squared = sum(value * value for value in s)
                factor = squared / (1 + squared) / math.sqrt(squared) if squared else 0.0
                capsules[(t * rows + y) * columns + x] = [factor * value for value in s]
    return capsules


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "change", [{}, {"primary_scale": 1 / 32}, {"primary_types": 1}], ids=["plain", "scale", "one"]
)
def test_a_primary_capsule_gathers_the_channels_of_its_type(
    config: DynamicConfig, change: dict[str, Any], batch: int
) -> None:
    """Channel t * dim + d at (y, x) is component d; its bias comes after the factor of 1/32."""
    config = replace(config, **change)
    layer, features = PrimaryCapsules(config), features_of(config, batch)
    assert layer.conv.bias is not None
    nn.init.normal_(layer.conv.bias)
    with torch.no_grad():
        capsules = layer(features)
        maps = nn.functional.conv2d(features, layer.conv.weight, None, config.primary_stride)
    expected = [slow_primary_capsules(image, layer.conv.bias, config) for image in maps]
    torch.testing.assert_close(capsules, torch.tensor(expected), atol=1e-5, rtol=0)


def test_the_encoders_answer_alike(network: DynamicCapsNet) -> None:
    """The plain one to rounding."""
    images, encoders = noise(network.config), network.encoders()
    expected = network(images).presence
    assert ["encoder", "encoder.batch"] == list(encoders)
    for role, tolerance in (("encoder", 1e-5), ("encoder.batch", 0.0)):
        actual = encoders[role](images).presence
        torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def test_the_paper_s_code_is_a_preset() -> None:
    """A bias of the class capsules, sums of the primary ones divided by 32, its own start."""
    expected = DynamicConfig(
        class_bias=True, primary_scale=1 / 32, initialisation="truncated-normal"
    )
    assert expected == PRESETS["mnist-paper-code"].network
