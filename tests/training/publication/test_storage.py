from __future__ import annotations

import pytest
import torch

from model.capsnet import CapsNet, CapsNetConfig
from training.publication.storage import CHANNEL_AXES, narrow, quantise, round_weights

CONFIG = CapsNetConfig(conv_channels=16, primary_types=2, decoder_hidden=(64, 80))


@pytest.fixture
def network() -> CapsNet:
    """An untrained one."""
    torch.manual_seed(0)
    return CapsNet(CONFIG)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_channel_has_a_scale_of_its_own(axis: int) -> None:
    """No number moves by more than half a step, and a step is a 127th of its channel's largest."""
    weight = torch.randn(5, 6, 7) * torch.logspace(-3, 3, (5, 6, 7)[axis]).view(
        [-1 if other == axis else 1 for other in range(3)]
    )
    stored = quantise(weight, axis)
    others = [other for other in range(3) if other != axis]
    steps = weight.abs().amax(dim=others, keepdim=True) / 127
    assert stored.scales is not None
    torch.testing.assert_close(stored.scales, steps.flatten(), rtol=1e-4, atol=0)
    assert torch.all((stored.widen() - weight).abs() <= 0.501 * steps)


def test_codes_are_symmetric() -> None:
    """The largest number of a channel is 127 or -127, and zero stays zero."""
    stored = quantise(torch.tensor([[3.0, 0.0, -1.5], [0.5, 0.0, -2.0]]), 0)
    assert [[127, 0, -64], [32, 0, -127]] == stored.numbers.tolist()
    assert torch.int8 == stored.numbers.dtype


def test_a_channel_of_zeros_stays_so() -> None:
    """Nothing is divided by zero."""
    assert torch.equal(torch.zeros(2, 3), quantise(torch.zeros(2, 3), 0).widen())


def test_what_was_quantised_gives_the_same_codes_and_scales() -> None:
    """Bit for bit: they can be read back from the numbers that they stand for."""
    weight = torch.randn(1000, 50) * torch.logspace(-6, 6, 1000)[:, None]
    once = quantise(weight, 0)
    again = quantise(once.widen(), 0)
    assert once.scales is not None
    assert again.scales is not None
    assert torch.equal(once.numbers, again.numbers)
    assert torch.equal(once.scales, again.scales)


def test_eight_bits_are_for_the_large_weights_behind_the_first_convolution(
    network: CapsNet,
) -> None:
    """Others are stored in 16, and small ones not at all."""
    kinds = {name: one.numbers.dtype for name, one in narrow(network, 8).items()}
    assert {"conv.weight": torch.float16, **dict.fromkeys(CHANNEL_AXES, torch.int8)} == kinds
    assert kinds.keys() == narrow(network, 16).keys()


@pytest.mark.parametrize("bits", [8, 16])
def test_a_rounded_network_holds_what_is_stored(network: CapsNet, bits: int) -> None:
    """Bit for bit; and small weights are as they were."""
    before = {name: one.detach().clone() for name, one in network.named_parameters()}
    round_weights(network, bits)
    stored = narrow(network, bits)
    for name, parameter in network.named_parameters():
        wanted = stored[name].widen() if name in stored else before[name]
        assert torch.equal(wanted, parameter)
        assert (name in stored) == (not torch.equal(before[name], parameter))


def test_other_bits_are_refused(network: CapsNet) -> None:
    """There are two ways to store a network."""
    with pytest.raises(ValueError, match="8 or 16 bits, not in 4"):
        narrow(network, 4)
