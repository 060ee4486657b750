"""The CNN that Sabour et al. (2017) compare with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from model.capsnet import family_of
from model.capsnet.baseline import BaselineCnn, BaselineConfig
from tests.model.capsnet.networks import SMALL, count_encoder, lively, noise


def test_it_has_the_paper_s_size() -> None:
    """35.4 million parameters: 256, 256 and 128 channels, 328 and 192 hidden units."""
    count = count_encoder(BaselineConfig())
    assert 35_445_522 == count
    assert 35.4 == round(count / 1e6, 1)


def test_it_offers_nothing_but_an_answer() -> None:
    """Neither poses of any size nor layers that are routed, and no decoder."""
    network = lively(SMALL["baseline"])
    assert not family_of(network.config).offers
    assert ((4, 5, 0), ()) == (network(noise(network.config)).poses.shape, network.layers)
    assert not [name for name, _ in network.named_parameters() if "decoder" in name]


def test_probabilities_sum_to_one() -> None:
    """One class is present."""
    network = lively(SMALL["baseline"])
    torch.testing.assert_close(network(noise(network.config)).presence.sum(dim=1), torch.ones(4))


def test_several_classes_have_a_probability_each() -> None:
    """Two digits may both be sure; probabilities are those of the logits, one by one."""
    network = BaselineCnn(replace(SMALL["baseline"], multi_label=True)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        network.classes.weight.zero_()
        assert network.classes.bias is not None
        network.classes.bias.copy_(torch.tensor([9.0, 9.0, 0.0, -9.0, -9.0]))
    presence = network(noise(network.config, 1)).presence[0]
    torch.testing.assert_close(presence, torch.tensor([9.0, 9.0, 0.0, -9.0, -9.0]).sigmoid())


def test_dropout_is_off_when_asked() -> None:
    """On in training; afterwards the same image has the same answer."""
    network, images = lively(SMALL["baseline"]), noise(SMALL["baseline"], 16)
    assert torch.equal(network(images).presence, network(images).presence)
    network.train()
    assert not torch.equal(network(images).presence, network(images).presence)


def test_pooling_halves_the_maps() -> None:
    """After each convolution; without it they keep the image's size."""
    for pooling, cells in ((True, 4 * 5), (False, 17 * 20)):
        network = BaselineCnn(replace(SMALL["baseline"], pooling=pooling))  # type: ignore[arg-type]
        linear = next(layer for layer in network.features if isinstance(layer, nn.Linear))
        assert 7 * cells == linear.in_features


def test_without_dropout_is_a_configuration() -> None:
    """Zero is allowed there, and one would leave nothing."""
    assert BaselineConfig(dropout=0)
    with pytest.raises(ValueError, match="dropout is in"):
        BaselineConfig(dropout=1)
    with pytest.raises(ValueError, match="each convolution has a kernel"):
        BaselineConfig(kernels=(5,))
