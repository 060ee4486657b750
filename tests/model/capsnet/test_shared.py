"""Su's network (2018): weights shared by all input capsules, so any number of them."""

from __future__ import annotations

import pytest
import torch

from model.capsnet.routing import RoutingByKMeans
from model.capsnet.shared import SharedCapsNet, SharedConfig
from tests.model.capsnet.networks import count_encoder, lively, noise


@pytest.fixture
def network() -> SharedCapsNet:
    config = SharedConfig(class_dim=5, num_classes=4, decoder_hidden=(7, 8))
    network = lively(config)
    assert isinstance(network, SharedCapsNet)
    return network


def test_the_encoder_has_the_source_s_size() -> None:
    """279,488 parameters: two convolutions of 64, two of 128, one transformation."""
    assert 279_488 == count_encoder(SharedConfig())
    assert (8, 8, 14, 2, 0) == SharedConfig().grid


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_two_digits_side_by_side(network: SharedCapsNet, iterations: int) -> None:
    """28x56 pixels are more cells, each of which votes as by hand; the weights stay the same."""
    network.routing = RoutingByKMeans(iterations)
    images = torch.rand(2, 1, 28, 56)
    cells = network.stem(images)  # (2, 128, 8, 22)
    weight = network.votes.weight.reshape(128, 4, 5)
    votes = torch.einsum("ncyx,ckd->nkyxd", cells, weight).flatten(2, 3)
    expected = RoutingByKMeans(iterations)(votes)
    presence, poses = network(images)
    torch.testing.assert_close(poses, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(presence, expected.norm(dim=-1), atol=4e-4, rtol=0)
    assert (2, iterations, 4, 8 * 22) == network.trace(images).classes.couplings.shape


def test_a_capsule_is_a_cell(network: SharedCapsNet) -> None:
    """Input capsule row * columns + column: a change in a corner moves the last one alone."""
    images = noise(network.config, 1)
    changed = images.clone()
    changed[..., -1, -1] += 1
    votes = [network.trace(some).classes.votes for some in (images, changed)]
    moved = (votes[0] - votes[1]).abs().amax(dim=(0, 1, 3)) > 0
    assert [63] == moved.nonzero().flatten().tolist()
