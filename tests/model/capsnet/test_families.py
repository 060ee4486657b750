"""What every family promises: see `model.capsnet.network`."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from model.bundle import Bundle
from model.capsnet import (
    FAMILIES,
    Network,
    NetworkConfig,
    build,
    config_from_dict,
    family_of,
    load,
)
from model.runtime import Runtime
from tests.model.capsnet.networks import SMALL, noise

CONVOLUTIONAL = {
    name: config
    for name, config in SMALL.items()
    if hasattr(config, "stem") or hasattr(config, "convs")
}
defaults = pytest.mark.parametrize("family", FAMILIES)


def offers(network: Network) -> frozenset[str]:
    return frozenset(family_of(network.config).offers)


@defaults
def test_unknown_settings_are_refused_by_name(family: str) -> None:
    """A misspelt key is an error that names it."""
    with pytest.raises(ValueError, match="hight: Unexpected keyword"):
        config_from_dict({"family": family, "hight": 28, "num_classes": 3})


@pytest.mark.parametrize("values", [{}, {"family": None}, {"family": "hinton"}])
def test_an_unknown_family_is_refused(values: dict[str, Any]) -> None:
    """The message names those that there are; bare sizes are no network either."""
    with pytest.raises(ValueError, match=r"unknown family .*there are dynamic, attention"):
        config_from_dict(values)
    with pytest.raises(ValueError, match="NetworkConfig belongs to no family"):
        build(NetworkConfig())


@pytest.mark.parametrize("value", [0, -1, float("nan")])
@defaults
def test_sizes_are_positive(family: str, value: float) -> None:
    """Whichever size it is, of the family's own or of all, the message names it.

    What is zero by default may be zero.
    """
    config = FAMILIES[family].config
    for field in fields(config):
        default = getattr(config(), field.name)
        if value == 0 and (default == 0 or field.name == "dropout"):
            continue
        if type(default) in (int, float):
            with pytest.raises(ValueError, match=field.name):
                config_from_dict({"family": family, field.name: value})


@pytest.mark.parametrize("size", [{"height": 3}, {"width": 3}], ids=str)
@pytest.mark.parametrize("config", CONVOLUTIONAL.values(), ids=CONVOLUTIONAL)
def test_an_image_that_is_too_small_is_refused(config: NetworkConfig, size: Any) -> None:
    """When it is configured, in a sentence, not by a tensor without elements."""
    with pytest.raises(ValueError, match="too small"):
        replace(config, **size)


def test_presence_is_what_the_registry_says(any_network: Network) -> None:
    """The length of poses, an activation next to them, or probabilities that sum to one."""
    presence, poses = any_network(noise(any_network.config))
    kind = family_of(any_network.config).presence
    if kind == "length":
        torch.testing.assert_close(presence, poses.norm(dim=-1), atol=4e-4, rtol=0)
    elif kind == "probability":
        torch.testing.assert_close(presence.sum(dim=1), torch.ones(4))
    else:
        assert (presence - poses.norm(dim=-1)).abs().max() > 0.1


def test_layers_tell_where_capsules_sit(routed_network: Network) -> None:
    """The last field ends within the image, less than a stride before its end."""
    for layer in routed_network.layers:
        for cells, pixels in ((layer.rows, 17), (layer.columns, 20)):
            end = (cells - 1) * layer.stride_px + layer.field_px
            if cells > 1:
                assert pixels - 2 * layer.stride_px < end <= pixels


def test_every_parameter_learns(any_network: Network) -> None:
    """Gradients of presence and of drawings reach all that is trained."""
    presence, poses = any_network(noise(any_network.config, 8))
    loss = presence[:, 0].square().sum()
    if "decode" in offers(any_network):
        classes = torch.arange(5).repeat(8)
        loss = loss + any_network.decode(poses.flatten(0, 1), classes).square().sum()
    loss.backward()
    unmoved = [n for n, p in any_network.named_parameters() if p.grad is None or not p.grad.any()]
    assert [] == unmoved


def test_a_dead_network_gives_no_nan(any_network: Network) -> None:
    """Features that are all zero leave every answer and gradient finite, black images too."""
    for module in any_network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.zeros_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    presence, poses = any_network(noise(any_network.config) * 0)
    (presence.sum() + poses.sum()).backward()
    assert presence.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in any_network.parameters())


@defaults
def test_a_loaded_network_answers_as_the_runtime_does(family: str, family_bundles: Path) -> None:
    """Of every family: presence and poses of the same images, from the same file of weights."""
    bundle = Bundle.open(family_bundles / f"tiny-{family}")
    images = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
    network = load(bundle)
    with torch.inference_mode():
        expected = network(torch.from_numpy(images))
    assert not network.training
    for wanted, actual in zip(expected, Runtime(bundle, device="cpu").encode(images), strict=True):
        np.testing.assert_allclose(actual, wanted.numpy(), atol=1e-4)
