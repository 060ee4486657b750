"""Sabour, Frosst and Hinton (2017), and the ways in which their code differs from their text."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from model.capsnet import build
from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig, PrimaryCapsules
from model.capsnet.routing import by_agreement
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


def test_each_part_has_the_paper_s_size() -> None:
    """The parameters sit in the layers that the paper puts them in."""
    with torch.device("meta"):
        network = build(DynamicConfig())
    counts = [count_parameters(part) for part in network.children()]
    assert [20_992, 5_308_672, 1_474_560, 1_411_344] == [count for count in counts if count]


@pytest.mark.parametrize(("size", "expected"), [(17, 32), (28, 1152), (36, 3200)])
def test_the_number_of_primary_capsules_follows_the_image(size: int, expected: int) -> None:
    """Two 9x9 windows, the second one of stride 2, leave this many capsules."""
    assert expected == DynamicConfig(height=size, width=size).num_primary


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silent_features_give_no_nan(config: DynamicConfig, dtype: torch.dtype) -> None:
    """Primary capsules of zero length keep every gradient finite."""
    layer = PrimaryCapsules(config).to(dtype)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    capsules = layer(features_of(config, 2).to(dtype))
    capsules.sum().backward()
    assert not capsules.any()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("class_bias", [False, True])
@pytest.mark.parametrize("iterations", [1, 3])
def test_class_capsules_route_their_votes(
    config: DynamicConfig, iterations: int, *, class_bias: bool
) -> None:
    """Poses are the routed votes, with the configured iterations and bias."""
    config = replace(config, routing_iterations=iterations, class_bias=class_bias)
    network, images = dynamic(config), noise(config)
    votes = network.votes(network.primary(network.stem(images)))
    expected = by_agreement.Routing(iterations)(votes, network.class_bias)
    assert class_bias == (network.class_bias is not None)
    torch.testing.assert_close(network(images).poses, expected)
    torch.testing.assert_close(network.train()(images).poses, expected)


@pytest.mark.parametrize(
    "change",
    [{"primary_scale": 0.1}, {"class_bias": False}, {"routing_iterations": 1}],
    ids=str,
)
def test_a_setting_changes_the_answer(
    config: DynamicConfig, network: DynamicCapsNet, change: dict[str, Any]
) -> None:
    """With all shared weights equal, the setting alone moves presence."""
    changed, images = build(replace(config, **change)).eval(), noise(config)
    changed.load_state_dict(network.state_dict(), strict=False)
    assert (changed(images).presence - network(images).presence).abs().max() > 1e-3


def test_routing_stays_in_float32_under_autocast(network: DynamicCapsNet) -> None:
    """From the same primary capsules half-precision training routes to the same poses."""
    primary = torch.randn(2, network.config.num_primary, network.config.primary_dim)
    network.primary.forward = lambda _: primary  # type: ignore[method-assign]
    images = noise(network.config, 2)
    expected = network(images).poses
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(expected, network(images).poses)


def test_the_encoders_answer_alike(network: DynamicCapsNet) -> None:
    """The plain one to rounding, the one in float16 within a hundredth; the network stays as is."""
    images, encoders = noise(network.config), network.encoders()
    expected = network(images).presence
    assert ["encoder", "encoder.batch", "encoder.fp16"] == list(encoders)
    for role, tolerance in (("encoder", 1e-5), ("encoder.batch", 0.0), ("encoder.fp16", 1e-2)):
        actual = encoders[role](images).presence
        torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)
    assert {torch.float32} == {parameter.dtype for parameter in network.parameters()}
    assert encoders["encoder.fp16"].get_parameter("votes.weight").dtype == torch.float16


@pytest.mark.parametrize(
    ("initialisation", "expected"), [("fan-in", 0.0), ("truncated-normal", 0.1)]
)
def test_convolutions_start_with_the_biases_of_their_scheme(
    config: DynamicConfig, initialisation: Literal["fan-in", "truncated-normal"], expected: float
) -> None:
    """The paper's code starts both at 0.1, fan-in at zero; class capsules' are 0.1 in both."""
    network = build(replace(config, initialisation=initialisation))
    for name in ("stem.0.bias", "primary.conv.bias"):
        bias = network.get_parameter(name)
        torch.testing.assert_close(bias, torch.full_like(bias, expected))
    assert 0.1 == pytest.approx(network.get_parameter("class_bias").unique().item())


def test_the_paper_s_code_draws_truncated_normal_weights() -> None:
    """Sigma 0.05 in the first layer and 0.1 elsewhere, the decoder's too, whose biases are 0.1."""
    config = PRESETS["mnist-paper-code"].network
    assert isinstance(config, DynamicConfig)
    smaller = replace(config, stem=config.stem, primary_types=4, decoder_hidden=(64, 64))
    for name, parameter in build(smaller).named_parameters():
        if name.endswith("bias"):
            torch.testing.assert_close(parameter, torch.full_like(parameter, 0.1))
        else:
            sigma = 0.05 if name.startswith("stem") else 0.1
            assert parameter.abs().max().item() <= 2 * sigma
            assert 0.88 * sigma == pytest.approx(parameter.std().item(), rel=0.05)


def test_truncated_weights_spare_batch_normalisation(config: DynamicConfig) -> None:
    """A scale near zero would silence the stem."""
    network = build(replace(config, batch_norm=True, initialisation="truncated-normal"))
    assert torch.equal(torch.ones(9), network.get_parameter("stem.2.weight"))


def test_the_paper_s_code_is_a_preset() -> None:
    """A bias of the class capsules, sums of the primary ones divided by 32, its own start."""
    expected = DynamicConfig(
        class_bias=True, primary_scale=1 / 32, initialisation="truncated-normal"
    )
    assert expected == PRESETS["mnist-paper-code"].network


def test_another_initialisation_is_refused(config: DynamicConfig) -> None:
    """No silent fall-back to the other one."""
    with pytest.raises(ValueError, match="fan-in or truncated-normal"):
        replace(config, initialisation="zeros")  # type: ignore[arg-type]


def test_a_copy_computes_by_itself(network: DynamicCapsNet) -> None:
    """Encoders are copies: training on changes none of them."""
    images, plain = noise(network.config), network.encoders()["encoder"]
    before = copy.deepcopy(plain)(images).presence
    with torch.no_grad():
        network.votes.weight.zero_()
    torch.testing.assert_close(plain(images).presence, before)
