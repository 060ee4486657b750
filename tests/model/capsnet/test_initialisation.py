from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from model.capsnet import CapsNet, CapsNetConfig


@pytest.fixture
def wide(config: CapsNetConfig) -> CapsNetConfig:
    """Layers with enough weights to measure a deviation."""
    return replace(
        config,
        conv_channels=64,
        primary_types=16,
        primary_dim=4,
        class_bias=True,
        decoder_hidden=(40, 8),
    )


def _bias(convolution: nn.Conv2d) -> Tensor:
    assert convolution.bias is not None
    return convolution.bias


@pytest.mark.parametrize(
    ("initialisation", "expected"), [("fan-in", 0.0), ("truncated-normal", 0.1)]
)
def test_convolutions_start_with_the_biases_of_their_scheme(
    wide: CapsNetConfig, initialisation: Literal["fan-in", "truncated-normal"], expected: float
) -> None:
    """The paper's code starts both at 0.1, fan-in at zero."""
    network = CapsNet(replace(wide, initialisation=initialisation))

    for bias in (_bias(network.conv), _bias(network.primary.conv)):
        torch.testing.assert_close(bias, torch.full_like(bias, expected))


def test_truncated_weights_lie_within_two_deviations(wide: CapsNetConfig) -> None:
    """The paper's code cuts sigma 0.05 and 0.1 off at twice that, which leaves 0.88 sigma."""
    network = CapsNet(replace(wide, initialisation="truncated-normal"))

    for weight, sigma in ((network.conv.weight, 0.05), (network.primary.conv.weight, 0.1)):
        assert weight.abs().max().item() <= 2 * sigma
        assert 0.88 * sigma == pytest.approx(weight.std().item(), rel=0.1)


def test_fan_in_weights_keep_the_variance(wide: CapsNetConfig) -> None:
    """Deviations are the square root of two over the number of inputs."""
    network = CapsNet(wide)

    for weight in (network.conv.weight, network.primary.conv.weight):
        expected = (2 / weight[0].numel()) ** 0.5
        assert expected == pytest.approx(weight.std().item(), rel=0.1)


@pytest.mark.parametrize("initialisation", ["fan-in", "truncated-normal"])
def test_class_capsules_start_as_in_the_papers_code(
    wide: CapsNetConfig, initialisation: Literal["fan-in", "truncated-normal"]
) -> None:
    """Transformations are truncated normal with sigma 0.1 and biases 0.1 in both schemes."""
    classes = CapsNet(replace(wide, initialisation=initialisation)).classes

    assert classes.weight.abs().max().item() <= 0.2
    assert pytest.approx(classes.weight.std().item(), rel=0.1) == 0.088
    assert classes.bias is not None
    torch.testing.assert_close(classes.bias, torch.full_like(classes.bias, 0.1))


def test_the_decoder_starts_as_one_dense_layer(wide: CapsNetConfig) -> None:
    """Every class's matrix is filled, within the bound for the whole masked layer."""
    weight = CapsNet(wide).decoder.class_weight
    bound = (6 / (wide.num_classes * wide.class_dim + wide.decoder_hidden[0])) ** 0.5

    assert 0.9 * bound < weight.abs().amax(dim=(1, 2)).min().item()
    assert weight.abs().max().item() <= bound
