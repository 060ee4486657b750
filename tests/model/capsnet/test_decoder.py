from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.capsnet import NetworkConfig
from model.capsnet.decoder import Decoder
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


@pytest.mark.parametrize("count", [1, 6])
def test_each_pose_becomes_one_image(config: NetworkConfig, decoder: Decoder, count: int) -> None:
    """A single pose keeps its batch and channel axes."""
    images = decoder(torch.randn(count, config.class_dim), torch.zeros(count, dtype=torch.int64))

    assert (count, 3, config.height, config.width) == images.shape


def test_pixels_stay_between_black_and_white(config: NetworkConfig, decoder: Decoder) -> None:
    """Absurd poses saturate instead of leaving the range."""
    images = decoder(1e3 * torch.randn(20, config.class_dim), torch.arange(20) % 5)

    assert (images.min().item(), images.max().item()) == (0.0, 1.0)


def test_pixels_are_laid_out_channel_by_channel_and_row_by_row(
    config: NetworkConfig, decoder: Decoder
) -> None:
    """Output (channel * height + y) * width + x is the pixel at row y and column x."""
    torch.nn.init.zeros_(decoder.pixels.weight)
    with torch.no_grad():
        place = (2 * config.height + 4) * config.width + 7
        decoder.pixels.bias.zero_()[place] = 50.0

    image = decoder(torch.randn(1, config.class_dim), torch.tensor([1]))[0]

    assert (image > 0.9).nonzero().tolist() == [[2, 4, 7]]


def test_the_class_decides_the_image(config: NetworkConfig, decoder: Decoder) -> None:
    """One pose drawn as each class gives as many different images."""
    pose = torch.randn(1, config.class_dim).expand(config.num_classes, -1)

    images = decoder(pose, torch.arange(config.num_classes)).flatten(1)

    assert config.num_classes == len(images.unique(dim=0))


def test_only_the_class_asked_for_learns(config: NetworkConfig, decoder: Decoder) -> None:
    """The other classes' matrices get a gradient of zero, as the paper's mask gives them."""
    decoder(torch.randn(4, config.class_dim), torch.tensor([2, 2, 0, 2])).sum().backward()

    gradient = decoder.class_weight.grad
    assert gradient is not None
    assert gradient.abs().amax(dim=(1, 2)).gt(0).tolist() == [True, False, True, False, False]


def test_the_decoder_teaches_the_pose(config: NetworkConfig, decoder: Decoder) -> None:
    """The reconstruction loss reaches the encoder through the poses."""
    pose = torch.randn(1, config.class_dim, requires_grad=True)

    (gradient,) = torch.autograd.grad(decoder(pose, torch.tensor([1])).sum(), pose)

    assert gradient.abs().max() > 0


def test_the_decoder_starts_as_one_dense_layer() -> None:
    """Every class's matrix is filled, within the bound for the whole masked layer."""
    config = NetworkConfig(num_classes=5, class_dim=6, decoder_hidden=(40, 8))
    weight = Decoder(config).class_weight
    bound = (6 / (5 * 6 + 40)) ** 0.5

    assert 0.9 * bound < weight.abs().amax(dim=(1, 2)).min().item()
    assert weight.abs().max().item() <= bound
