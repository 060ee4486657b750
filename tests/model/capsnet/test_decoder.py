from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model.capsnet import NetworkConfig, build
from model.capsnet.attention import AttentionConfig
from model.capsnet.decoder import ClassCodes, Decoder, build_decoder
from model.capsnet.stem import Conv
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


HOMOGENEOUS = AttentionConfig(
    channels=2,
    height=12,
    width=8,
    num_classes=3,
    class_dim=5,
    stem=(Conv(8, 3, 2),),
    primary="spatial",
    pose="homogeneous",
)


def spread(count: int) -> tuple[Tensor, Tensor]:
    """Images of three classes, each around a mean of its own along four directions of its own."""
    generator = torch.Generator().manual_seed(3)
    means = 0.3 + 0.4 * torch.rand(3, 1, 2 * 12 * 8, generator=generator)
    axes = torch.randn(3, 4, 2 * 12 * 8, generator=generator) / 100
    numbers = torch.randn(3, count, 4, generator=generator)
    images = (means + numbers @ axes).clamp(0, 1)
    return images.reshape(-1, 2, 12, 8), torch.arange(3).repeat_interleave(count)


def test_classes_of_few_images_share_in_the_spread_of_all() -> None:
    """New images of classes that vary alike are drawn better than by four images each."""
    generator = torch.Generator().manual_seed(5)
    axes = torch.randn(4, 2 * 12 * 8, generator=generator) / 100
    numbers = torch.randn(2, 12, 4, generator=generator)
    few, new = (0.5 + numbers @ axes).reshape(2, 12, 2, 12, 8)
    labels, network = torch.arange(3).repeat_interleave(4), build(HOMOGENEOUS).eval()
    assert isinstance(network.decoder, ClassCodes)
    network.decoder.fit(few, labels)
    with torch.inference_mode():
        poses = network(new).poses[torch.arange(12), labels]
        drawn = network.decode(poses, labels)
    assert (drawn - new).square().mean() < 0.05 * (new - 0.5).square().mean()


@pytest.mark.parametrize("count", [30, 400], ids=["fewer than pixels", "more than pixels"])
def test_a_pose_draws_the_image_as_its_class_has_it(count: int) -> None:
    """Images that differ by as many directions as the code has numbers come back whole."""
    images, labels = spread(count)
    network = build(HOMOGENEOUS).eval()
    assert isinstance(network.decoder, ClassCodes)
    network.decoder.fit(images, labels)
    with torch.inference_mode():
        poses = network(images).poses[torch.arange(len(labels)), labels]
        drawn = network.decode(poses, labels)
        others = network.decode(poses, (labels + 1) % 3)
    inner = (images - images.mean(dim=0)).square().mean()
    assert (drawn - images).square().mean() < 0.01 * inner
    assert inner < (others - images).square().mean()
