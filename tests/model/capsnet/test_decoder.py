from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model.capsnet import NetworkConfig
from model.capsnet.decoder import (
    Decoder,
    build_decoder,
)
from tests.model.capsnet.networks import SIZES


@pytest.fixture
def config() -> NetworkConfig:
    """Colour images that are not square."""
    return NetworkConfig(**SIZES, class_dim=6)


@pytest.fixture
def decoder(config: NetworkConfig) -> Decoder:
    """A decoder every parameter of which, biases included, is random."""
    decoder = Decoder(config)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter)
    return decoder


def masked_dense_decoder(decoder: Decoder, capsules: Tensor, classes: Tensor) -> Tensor:
    """The paper's decoder: all capsules (M, K, D), those not asked for zeroed, as one vector."""
    mask = torch.zeros(capsules.shape[:2])
    for row, asked in enumerate(classes.tolist()):
        mask[row, asked] = 1.0
    flat = (capsules * mask.unsqueeze(-1)).flatten(1)  # (M, K * D)
    dense = decoder.class_weight.reshape(flat.shape[1], -1)  # (K * D, first)
    first = torch.relu(flat @ dense + decoder.class_bias)
    second = torch.relu(first @ decoder.hidden.weight.T + decoder.hidden.bias)
    return torch.sigmoid(second @ decoder.pixels.weight.T + decoder.pixels.bias)


@pytest.mark.parametrize("classes", [[3], [0, 0], [4, 1, 4, 0, 2]], ids=str)
def test_the_decoder_is_the_papers_masked_one(
    config: NetworkConfig, decoder: Decoder, classes: list[int]
) -> None:
    """Using one class's matrix equals zeroing all other capsules before a dense layer."""
    asked = torch.tensor(classes)
    capsules = torch.randn(len(classes), config.num_classes, config.class_dim)
    poses = torch.stack([capsules[row, k] for row, k in enumerate(classes)])

    expected = masked_dense_decoder(decoder, capsules, asked)
    torch.testing.assert_close(decoder(poses, asked).flatten(1), expected)


CONVOLUTIONAL: dict[str, Any] = {**SIZES, "decoder_hidden": (7,), "decoder_channels": (6, 5, 4)}


def test_large_images_are_drawn_small_and_doubled() -> None:
    """Between two pixels that the last convolution draws, others are interpolated."""
    small = build_decoder(NetworkConfig(**CONVOLUTIONAL, class_dim=6))
    sizes = {"height": 2 * SIZES["height"], "width": 2 * SIZES["width"]}
    config = NetworkConfig(**{**CONVOLUTIONAL, **sizes}, class_dim=6, decoder_doublings=1)
    large = build_decoder(config)
    large.load_state_dict(small.state_dict())
    poses, classes = torch.randn(2, 6), torch.tensor([0, 4])
    images = large(poses, classes)
    assert (2, 3, 34, 40) == images.shape
    inner = images.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    torch.testing.assert_close(inner, small(poses, classes), atol=0.02, rtol=0)
