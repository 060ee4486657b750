from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from model.capsnet import CapsNet, CapsNetConfig


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test draws the same numbers and leaves the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def config() -> CapsNetConfig:
    """A small network no two sizes of which are equal: a 4 x 4 grid, 48 primary capsules."""
    return CapsNetConfig(
        image_size=12,
        conv_channels=9,
        conv_kernel=3,
        primary_types=3,
        primary_dim=2,
        primary_kernel=3,
        num_classes=5,
        class_dim=6,
        decoder_hidden=(7, 8),
    )


@pytest.fixture
def network(config: CapsNetConfig) -> CapsNet:
    """The small network, its votes long enough that routing tells the classes apart."""
    network = CapsNet(config)
    with torch.no_grad():
        network.classes.weight.mul_(10)
    return network


@pytest.fixture
def images(config: CapsNetConfig) -> torch.Tensor:
    """Four images of noise."""
    return torch.rand(4, 1, config.image_size, config.image_size)
