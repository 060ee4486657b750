from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model.capsnet import CapsNetConfig
from model.capsnet.layers import ClassCapsules, PrimaryCapsules
from model.capsnet.routing import route, trace


def _features(config: CapsNetConfig, batch: int) -> Tensor:
    return torch.randn(batch, config.conv_channels, config.conv_size, config.conv_size)


def _primary(config: CapsNetConfig, batch: int) -> Tensor:
    return torch.randn(batch, config.num_primary, config.primary_dim)


def _class_capsules(config: CapsNetConfig) -> ClassCapsules:
    layer = ClassCapsules(config)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def slow_primary_capsules(maps: Tensor, config: CapsNetConfig) -> list[list[float]]:
    """The capsules of one image from its feature maps (C, H, W), one number at a time."""
    grid, dim = config.grid_size, config.primary_dim
    capsules: list[list[float]] = [[] for _ in range(config.num_primary)]
    for t in range(config.primary_types):
        for y in range(grid):
            for x in range(grid):
                s = [config.primary_scale * maps[t * dim + d, y, x].item() for d in range(dim)]
                if config.primary_relu:
                    s = [max(value, 0.0) for value in s]
                squared = sum(value * value for value in s)
                factor = squared / (1 + squared) / math.sqrt(squared) if squared else 0.0
                capsules[(t * grid + y) * grid + x] = [factor * value for value in s]
    return capsules


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "change",
    [{}, {"primary_scale": 0.25}, {"primary_relu": True}, {"primary_types": 1}],
    ids=["plain", "scale", "relu", "one type"],
)
def test_a_primary_capsule_gathers_the_channels_of_its_type(
    config: CapsNetConfig, change: dict[str, Any], batch: int
) -> None:
    """Channel t * dim + d at (y, x) is component d of capsule (t * grid + y) * grid + x."""
    config = replace(config, **change)
    layer = PrimaryCapsules(config)
    features = _features(config, batch)

    with torch.no_grad():
        capsules, maps = layer(features), layer.conv(features)

    expected = torch.tensor([slow_primary_capsules(image, config) for image in maps])
    torch.testing.assert_close(capsules, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silent_features_give_no_nan(config: CapsNetConfig, dtype: torch.dtype) -> None:
    """Primary capsules of zero length keep every gradient finite."""
    layer = PrimaryCapsules(config).to(dtype)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    features = _features(config, 2).to(dtype)

    capsules = layer(features)
    capsules.sum().backward()

    assert torch.equal(torch.zeros(2, config.num_primary, config.primary_dim), capsules)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("batch", [1, 2])
def test_a_vote_is_the_capsule_times_its_own_matrix(config: CapsNetConfig, batch: int) -> None:
    """Vote (k, i) is u_i W_ik, each number a sum of products."""
    config = replace(config, image_size=8)
    layer, primary = _class_capsules(config), _primary(config, batch)

    votes = layer.votes(primary)

    expected = torch.zeros(batch, config.num_classes, config.num_primary, config.class_dim)
    weight, u = layer.weight.tolist(), primary.tolist()
    for n in range(batch):
        for k in range(config.num_classes):
            for i in range(config.num_primary):
                for d in range(config.class_dim):
                    expected[n, k, i, d] = sum(
                        u[n][i][e] * weight[i][e][k * config.class_dim + d]
                        for e in range(config.primary_dim)
                    )
    torch.testing.assert_close(votes, expected)


@pytest.mark.parametrize("class_bias", [False, True])
@pytest.mark.parametrize("iterations", [1, 3])
def test_class_capsules_route_their_votes(
    config: CapsNetConfig, iterations: int, *, class_bias: bool
) -> None:
    """Poses are the routed votes, with the configured iterations and bias."""
    layer = _class_capsules(replace(config, routing_iterations=iterations, class_bias=class_bias))
    primary = _primary(config, 2)

    expected = route(layer.votes(primary), iterations=iterations, bias=layer.bias)
    torch.testing.assert_close(layer(primary), expected)


@pytest.mark.parametrize("class_bias", [False, True])
def test_class_capsules_trace_their_routing(config: CapsNetConfig, *, class_bias: bool) -> None:
    """The trace has the configured iterations and bias too."""
    layer = _class_capsules(replace(config, routing_iterations=2, class_bias=class_bias))
    votes = layer.votes(_primary(config, 2))

    expected = trace(votes, iterations=2, bias=layer.bias)
    torch.testing.assert_close(layer.trace(votes), expected)


def test_the_class_bias_exists_only_on_request_and_matters(config: CapsNetConfig) -> None:
    """Without the setting there is no parameter; with it the poses move."""
    layer = _class_capsules(replace(config, class_bias=True))
    primary = _primary(config, 2)
    assert layer.bias is not None
    before = layer(primary)

    torch.nn.init.zeros_(layer.bias)

    assert _class_capsules(config).bias is None
    assert (layer(primary) - before).abs().max() > 1e-2


def test_the_routing_gradient_is_the_configured_one(config: CapsNetConfig) -> None:
    """Layers with equal weights but "all" and "last" learn differently."""
    primary = _primary(config, 2)
    layers = [_class_capsules(replace(config, routing_gradient=g)) for g in ("all", "last")]
    layers[1].load_state_dict(layers[0].state_dict())

    whole, last = (
        torch.autograd.grad(layer(primary)[:, 0].sum(), layer.weight)[0] for layer in layers
    )

    assert (whole - last).abs().max() > 1e-2


def test_class_capsules_stay_in_float32_under_autocast(config: CapsNetConfig) -> None:
    """Half-precision training leaves the routed poses exact."""
    layer, primary = _class_capsules(config), _primary(config, 2)
    expected = layer(primary)

    with torch.autocast("cpu", torch.bfloat16):
        poses = layer(primary)

    assert torch.equal(expected, poses)
